"""The names of places in words, and which place is a part of another."""

from __future__ import annotations


def contains(whole: str, part: str) -> bool:
    """Whether a place includes another one, such as `all mlp` or `layer 1` the block `1.mlp`."""
    if whole == part:
        return False
    if whole == "everywhere":
        return True
    layer, dot, kind = part.partition(".")
    if not dot:
        return False
    return whole in (f"all {kind}", f"layer {layer}")


def in_words(place: str) -> str:
    """A place in words."""
    fixed = {
        "embedding": "the token embeddings",
        "head": "the output head with its norm",
        "norms": "the norms of all layers",
        "everywhere": "all places alike",
    }
    if place in fixed:
        return fixed[place]
    if place.startswith("all "):
        return f"{place.removeprefix('all ')} in all layers"
    if place.startswith("layer "):
        return f"several blocks of {place}"
    layer, _, kind = place.partition(".")
    return f"layer {layer} {kind}"
