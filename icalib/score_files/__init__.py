"""Scores of other rankers: reading them, calibrating them, applying a calibrator to new ones."""
