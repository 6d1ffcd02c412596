"""From a forward function to moments of logit and probability."""
