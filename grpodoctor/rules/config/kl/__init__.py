"""Rules about the KL penalty."""
