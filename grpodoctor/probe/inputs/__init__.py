"""The probe's inputs: engine specifications, the plan, prompts, interpreters, checksums."""
