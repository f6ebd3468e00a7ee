"""Kinds of answers: puzzles, programs, tool calls, names, and those that are unusable."""
