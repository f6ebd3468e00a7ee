"""One folder per framework: the meaning of its log keys, its settings, its rollout dumps."""
