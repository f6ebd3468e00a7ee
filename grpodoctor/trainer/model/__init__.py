"""The policy and the models next to it: tokenizer, LoRA, critic, reference, checkpoints."""
