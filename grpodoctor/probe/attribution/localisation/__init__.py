"""Where an unexplained gap comes from: places of the model, and properties of the tokens."""
