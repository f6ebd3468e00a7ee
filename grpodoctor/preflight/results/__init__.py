"""Results of single checks and of a whole preflight."""
