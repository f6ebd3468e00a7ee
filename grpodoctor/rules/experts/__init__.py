"""MOE: expert routing of mixture-of-experts models."""
