"""Optimization: AdamW and Muon whose steps end on the sphere, schedules, and recipes of others."""
