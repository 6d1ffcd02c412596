"""Labelling: which pools to annotate next, files for annotators, and their labels back into pools."""
