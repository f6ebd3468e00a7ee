"""OpenRLHF, which is followed by its log."""
