"""Transformers models as engines: loading, scoring, sampling and expert replay."""
