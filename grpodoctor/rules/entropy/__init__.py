"""ENT: exploration."""
