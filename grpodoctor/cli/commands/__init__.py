"""One file per command; the function has the command's name."""
