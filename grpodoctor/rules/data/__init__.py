"""Rules about tokens, tools and environments."""
