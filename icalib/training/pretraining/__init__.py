"""Pretraining of small models that initialise an encoder without a backbone."""
