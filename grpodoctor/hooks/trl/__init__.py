"""TRL's `GRPOTrainer`."""
