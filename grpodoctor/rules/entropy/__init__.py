"""ENT: exploration and entropy."""
