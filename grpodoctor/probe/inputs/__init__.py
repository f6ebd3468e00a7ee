"""Inputs of a probe: engine specs, the plan, prompts, Pythons, and checksums."""
