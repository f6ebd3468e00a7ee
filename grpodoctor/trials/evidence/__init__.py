"""What the runs of trials show: statistics, evidence, pages, published results."""
