"""KLD: divergence from the old policy and from the reference model."""
