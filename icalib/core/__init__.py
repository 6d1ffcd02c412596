"""What every part shares: components, methods, errors, seeds, files, the run folder."""
