"""The results of a probe and the files they are kept in."""
