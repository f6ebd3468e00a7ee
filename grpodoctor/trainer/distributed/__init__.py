"""Training with several processes: ranks and sharded weights."""
