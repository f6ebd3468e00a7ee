"""What leaves a watched run: metrics for Prometheus, and snapshots for programs."""
