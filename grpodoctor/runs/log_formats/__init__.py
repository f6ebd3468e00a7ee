"""File formats that carry a training log: each gives rows of a step's numbers by their own keys."""
