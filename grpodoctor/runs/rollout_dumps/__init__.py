"""Rollout dumps: what frameworks write of the responses themselves, one file per format."""
