"""MIS: sampler-learner mismatch."""
