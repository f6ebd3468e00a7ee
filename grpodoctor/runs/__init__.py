"""Runs on disk and in memory: their format, recording, reading, and the chart that rules see."""
