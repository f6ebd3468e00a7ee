"""The checks of the preflight, one file each."""
