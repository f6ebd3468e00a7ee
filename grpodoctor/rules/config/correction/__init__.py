"""Rules about the engines and their correction."""
