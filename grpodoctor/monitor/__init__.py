"""Follow, examine and treat a run: from findings to a diagnosis."""
