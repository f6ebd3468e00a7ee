"""Mixture-of-experts models: routers, replay, readings."""
