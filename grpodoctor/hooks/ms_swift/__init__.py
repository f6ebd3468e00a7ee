"""The adapter for ms-swift."""
