"""One file per remedy, and one spelling table per framework."""
