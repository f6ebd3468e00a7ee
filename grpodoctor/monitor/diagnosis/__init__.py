"""From findings to a diagnosis: causes, costs, coverage and the verdict."""
