"""Rules about how training responses are sampled."""
