"""REINFORCE and its variants with importance weights that carry no gradient."""
