"""Losses that mask tokens by the divergence between sampler and learner."""
