"""OPT: loss, gradient and update."""
