"""Scores of other rankers and services: reading them, calibrating them, applying a calibrator to new ones."""
