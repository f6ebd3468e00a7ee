"""The entropy bonus and its adaptive coefficient, one file each."""
