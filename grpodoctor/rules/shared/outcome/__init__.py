"""Whether the outcome rose, stayed or fell, and with which policy."""
