"""MIS: the engine that samples against the one that learns."""
