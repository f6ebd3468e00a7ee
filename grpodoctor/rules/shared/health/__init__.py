"""Whether a run improves, and the measures that this is read from."""
