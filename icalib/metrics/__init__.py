"""Ranking, classification, calibration and abstention, all from the predictions table."""
