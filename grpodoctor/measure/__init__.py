"""Tensors in, typed values out. Pure."""
