"""The adapter for SkyRL."""
