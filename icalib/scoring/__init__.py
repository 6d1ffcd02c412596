"""Scoring pools with trained and untrained rankers."""
