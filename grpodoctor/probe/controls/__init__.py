"""Measurements with a known result, which show whether the probe can be trusted."""
