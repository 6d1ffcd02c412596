"""Heads: logits from features."""
