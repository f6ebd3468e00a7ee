"""Rollout dumps: dividing them into shards, measuring the responses, merging them into steps."""
