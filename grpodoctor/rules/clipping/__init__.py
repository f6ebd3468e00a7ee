"""CLP: trust region and clipping."""
