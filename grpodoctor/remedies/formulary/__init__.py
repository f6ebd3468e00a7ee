"""The remedies, one file each. A file put here is found; nothing else needs to know of it."""
