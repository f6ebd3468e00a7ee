"""Writers of logs with the keys and in the file format of each framework."""
