"""Disease, treated and control runs that prove rules and remedies."""
