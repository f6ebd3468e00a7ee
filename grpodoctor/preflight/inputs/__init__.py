"""Reading the inputs: prompts, tokenizer, options."""
