"""The entropy bonus and what sets its coefficient, one file each."""
