"""CLP: the trust region."""
