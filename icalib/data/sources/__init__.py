"""Readers, one file a source."""
