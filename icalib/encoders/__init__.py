"""Transformer cross-encoders."""
