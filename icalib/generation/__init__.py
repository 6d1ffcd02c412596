"""Generators of texts for labelled pools."""
