"""The stages of a run: the jobs that train and score a ranker's parts, and what runs them."""
