"""Decoders that several log formats share: binary records, lines of text, lists of rewards."""
