"""MOE: the routing of a mixture of experts."""
