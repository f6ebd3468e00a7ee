"""Rules about a run's configuration, which need no step."""
