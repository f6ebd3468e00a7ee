"""Measures, diagnoses and treats the reinforcement learning of language models."""

__version__ = "0.1.0"
