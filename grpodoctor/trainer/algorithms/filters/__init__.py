"""What is drawn and what of it is learnt from, one file each."""
