"""Measurements: `spherelm bench`. Each module measures one thing and prints one table."""
