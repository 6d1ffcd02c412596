"""Scoring of pools."""
