"""Supervised training and self-training, engine-free."""
