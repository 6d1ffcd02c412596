"""Training: the loop, its settings and what is learnt."""
