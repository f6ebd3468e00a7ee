"""`Doctor`: the instruments for a training loop in torch."""
