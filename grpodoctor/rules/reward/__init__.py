"""REW: reward and accuracy."""
