"""Training regimes: supervised, augmented, ensembles and self-training, independent of executors."""
