"""Reports of runs in the formats of continuous integration."""
