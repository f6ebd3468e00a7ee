"""How the log-probabilities of tokens respond to changes at the places of a model."""
