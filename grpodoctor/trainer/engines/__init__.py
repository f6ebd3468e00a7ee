"""Engines that sample: the built-in sampler and vLLM."""
