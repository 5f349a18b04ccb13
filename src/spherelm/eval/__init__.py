"""Evaluation of a trained model."""
