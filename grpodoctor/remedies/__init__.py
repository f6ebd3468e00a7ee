"""One file per remedy."""
