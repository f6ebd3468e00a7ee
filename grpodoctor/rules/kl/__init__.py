"""KLD: how far the policy moves."""
