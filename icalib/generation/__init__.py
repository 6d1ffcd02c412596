"""Generators: texts that are made up for labelled pools."""
