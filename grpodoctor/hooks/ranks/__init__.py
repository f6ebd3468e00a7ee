"""Several ranks: small messages between them, and one record of their parts."""
