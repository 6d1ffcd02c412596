"""Uncertainty estimators: moments of logit and probability from a model's forward passes."""
