"""What the frameworks' logs mean: one file per framework, a table of semantics in each."""
