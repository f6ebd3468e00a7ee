"""A run on disk and in memory: format, recorder, follower, chart."""
