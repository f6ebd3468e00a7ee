"""What the parts of a reward pay for, and how they move."""
