"""The parts of a ranker, whose columns are added: cross-encoder, similarity, intents; and the fit of the sum."""
