"""Edits that add the update since another checkpoint again: their causes and words."""

from __future__ import annotations

from pathlib import Path

from grpodoctor.probe.attribution.computed_cause import ComputedCause

MOVED, SCALED = "update_moved", "update_scale"
PARTS = {
    "": "",
    "layers": "in all layers ",
    "projections": "in the projections of all layers ",
    "attention": "in attention ",
    "mlp": "in MLPs ",
}
"""Tensors that an update concerns, with their words: those of an adapter are projections."""
UPDATE: dict[str, ComputedCause] = {
    SCALED: ComputedCause(
        "weight-update", "The {side} adds an update of the weights with a factor", "{value}",
        "Check the sync of differences: each is added once, with the factor of the adapter "
        "(alpha / rank), to the weights that it was computed for. Send whole tensors, or compare "
        "checksums after each sync.",
    ),
    MOVED: ComputedCause(
        "swapped-weights", "The {side} adds an update to another tensor than its own", "{value}",
        "Check the names under which the sync sends its tensors or adapters, and the order of "
        "fused projections that it writes to: gate and up, queries, keys and values.",
    ),
}  # fmt: skip


def scaled_update_in_words(place: str) -> str:
    """The update of a part since a checkpoint, `mlp|DIRECTORY`, with a place for its factor."""
    part, _, folder = place.partition("|")
    return f"the update since {Path(folder).name} {PARTS[part]}times {{}}"


def moved_update_in_words(folder: str, move: str) -> str:
    """Where the update since a checkpoint was added, for a sentence."""
    return f"the update since {Path(folder).name} {moved_in_words(move)}"


def moved_in_words(move: str) -> str:
    """Where an update was added, for a sentence."""
    if move in ("next", "previous"):
        return f"of each layer added to the {move} layer"
    layer, _, pair = move.rpartition(":")
    where = f" of layer {layer}" if layer else ""
    for sign in ("<>", ">>", ">"):
        source, found, target = pair.partition(sign)
        if found and sign == "<>":
            return f"of {source} and {target}{where} exchanged"
        if found:
            instead = " in place of its own" if sign == ">>" else ""
            return f"of {source}{where} added to {target}{instead}"
    return move
