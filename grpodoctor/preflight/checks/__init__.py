"""The preflight checks, one file per check and one folder per family."""
