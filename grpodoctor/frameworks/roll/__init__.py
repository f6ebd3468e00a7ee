"""ROLL of Alibaba."""
