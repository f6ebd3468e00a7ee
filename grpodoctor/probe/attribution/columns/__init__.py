"""Changes of a column of log-probabilities, and of the tokens that it covers."""
