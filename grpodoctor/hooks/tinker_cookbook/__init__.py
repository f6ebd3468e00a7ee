"""The adapter for tinker-cookbook."""
