"""Whether the learner's weights reach the sampler, checked after each sync."""
