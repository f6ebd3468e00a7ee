"""INS: consistency of the recorded data."""
