"""The hook for slime: a function that slime calls with the samples of each rollout."""
