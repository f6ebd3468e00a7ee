"""Rules about the range of every setting."""
