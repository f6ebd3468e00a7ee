"""The trials, by what is wrong; each module has a tuple `TRIALS`."""
