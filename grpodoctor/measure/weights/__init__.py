"""A learner's weights: how much an update changes them, and whether a sampler receives them."""
