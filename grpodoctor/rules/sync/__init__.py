"""Rules about weight sync, staleness and resumed runs."""
