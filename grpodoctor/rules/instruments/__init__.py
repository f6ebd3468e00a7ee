"""INS: the instruments themselves."""
