"""One file per rule, a folder per family."""
