"""GRP: the learning signal that groups of responses carry."""
