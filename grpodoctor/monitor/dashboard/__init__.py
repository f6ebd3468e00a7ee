"""What the dashboard shows: runs under observation, the table of runs, and comparisons."""
