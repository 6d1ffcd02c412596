"""Post-hoc calibration: maps from scores to probabilities, fitted on validation pairs."""
