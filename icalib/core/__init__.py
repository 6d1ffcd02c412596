"""What all layers share: components, settings, errors, seeds, files, storage, the run folder."""
