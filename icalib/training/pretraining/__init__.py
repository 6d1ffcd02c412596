"""Small models that an encoder without a backbone starts from."""
