"""Optimization: AdamW whose step ends on the sphere, and the cosine schedule."""
