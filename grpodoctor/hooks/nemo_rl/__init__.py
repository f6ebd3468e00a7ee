"""The adapter for NeMo RL."""
