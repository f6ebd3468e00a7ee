"""NeMo RL."""
