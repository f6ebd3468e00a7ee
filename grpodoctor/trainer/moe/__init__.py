"""Mixture-of-experts models: routers and recorded routes."""
