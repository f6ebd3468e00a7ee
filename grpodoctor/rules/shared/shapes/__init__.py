"""Shapes of a metric over a run: trends, falls, jumps, spikes and stages."""
