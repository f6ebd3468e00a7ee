"""What each number means: canonical metrics, knobs and typed mergeable values."""
