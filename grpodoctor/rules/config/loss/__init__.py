"""Rules about the loss and the advantages."""
