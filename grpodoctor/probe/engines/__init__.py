"""Run engine programs, check their output and keep it."""
