"""The mismatch that a run recorded itself: its trend, and its likely cause."""
