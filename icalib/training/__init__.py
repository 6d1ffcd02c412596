"""Training: the loop, its settings, and the curricula that it trains on."""
