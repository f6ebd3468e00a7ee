"""Read a run, once or while it is being written."""
