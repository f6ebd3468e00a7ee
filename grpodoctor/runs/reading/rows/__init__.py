"""From rows of logs to steps: their order, repeated values, and the assembly of steps."""
