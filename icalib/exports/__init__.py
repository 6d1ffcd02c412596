"""Exports: folders and files of a finished run's ranker that other software reads."""
