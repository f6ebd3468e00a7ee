"""GRP: learning signal of the groups."""
