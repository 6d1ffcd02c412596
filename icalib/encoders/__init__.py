"""Encoders: features of pairs or pools from token ids."""
