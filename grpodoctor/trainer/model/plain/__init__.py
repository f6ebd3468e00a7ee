"""The most common architecture of small models, computed with as few operations as possible."""
