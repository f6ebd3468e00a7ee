"""Forms of an answer that the prompts or the reward function ask for."""
