"""The hook for prime-rl: a loss that delegates to prime-rl's own."""
