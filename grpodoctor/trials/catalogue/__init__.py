"""The trials, by kind of fault; each module has a tuple `TRIALS`."""
