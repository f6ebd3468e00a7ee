"""Commands that print pages: rules, remedies, recipes and metrics."""
