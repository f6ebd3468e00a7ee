"""Edits with the update since another checkpoint: their causes and words."""

from __future__ import annotations

from pathlib import Path

from grpodoctor.probe.attribution.base import Identity
from grpodoctor.probe.attribution.edit_causes.computed_cause import ComputedCause
from grpodoctor.probe.attribution.edits import (
    UPDATE_FORMAT,
    UPDATE_MOVED,
    UPDATE_PART,
    UPDATE_SCALE,
)
from grpodoctor.probe.attribution.found_weights import is_optimizer

PARTS = {
    "": "",
    "layers": "in all layers ",
    "projections": "in the projections of all layers ",
    "attention": "in attention ",
    "mlp": "in MLPs ",
}
"""Tensors that an update concerns, with their words: those of an adapter are projections."""
UPDATE: dict[str, ComputedCause] = {
    UPDATE_SCALE: ComputedCause(
        "weight-update", "The {side} adds an update of the weights with a factor", "{value}",
        "Check the sync of differences: each is added once, with the factor of the adapter "
        "(alpha / rank), to the weights that it was computed for. Send whole tensors, or compare "
        "checksums after each sync.",
    ),
    UPDATE_MOVED: ComputedCause(
        "swapped-weights", "The {side} adds an update to another tensor than its own", "{value}",
        "Check the names under which the sync sends its tensors or adapters, and the order of "
        "fused projections that it writes to: gate and up, queries, keys and values.",
    ),
    UPDATE_PART: ComputedCause(
        "partial-sync", "Only a part of each update reaches the {side}'s weights", "{value}",
        "If only the largest changes are sent, keep what was left out and add it to the next "
        "update (error feedback), or send whole tensors. Compare checksums of whole tensors after "
        "each sync: a transfer that ends early, or drops small changes, must not count as done.",
    ),
    UPDATE_FORMAT: ComputedCause(
        "weight-update", "The {side} adds updates of the weights in a coarse format", "{value}",
        "Send the update in the precision of the weights, or keep its rounding error and add it "
        "to the next update (error feedback). Send whole tensors from time to time.",
    ),
}  # fmt: skip
ARRIVED = {
    "largest": "the largest {} of the changes of each tensor",
    "largest of all": "the largest {} of all changes",
    "relative": "the {} of the changes that are largest relative to their weight",
    "smallest": "the smallest {} of the changes of each tensor",
    "rows": "the {} of the rows of each tensor that changed most",
    "first": "the first {} of each tensor",
    "last": "the last {} of each tensor",
}
"""The elements that arrive, by the name of the part."""


def identity_of_update(edit: str) -> Identity:
    """The cause of an edit, as one of the sampler."""
    cause = UPDATE[edit]
    return Identity(cause.id, cause.title.format(side="sampler"), (cause.remedy,))


def since_in_words(path: str | Path) -> str:
    """Since when the weights changed: since a checkpoint, or by an optimizer's last update."""
    return f"{'by' if is_optimizer(Path(path)) else 'since'} {Path(path).name}"


def update_in_words(path: str | Path) -> str:
    """The update since other weights."""
    return f"the {'last ' if is_optimizer(Path(path)) else ''}update {since_in_words(path)}"


def scaled_update_in_words(place: str) -> str:
    """The update of a part since a checkpoint, `mlp|DIRECTORY`, with a place for its factor."""
    part, _, folder = place.partition("|")
    return f"{update_in_words(folder)} {PARTS[part]}times {{}}"


def partial_update_in_words(place: str) -> str:
    """A part of the update since a checkpoint, `largest|DIRECTORY`, with a place for its share."""
    part, _, folder = place.partition("|")
    return f"{ARRIVED[part.partition(':')[0]]} {since_in_words(folder)} alone"


def coarse_update_in_words(folder: str, precision: str) -> str:
    """The format of the update since a checkpoint, for a sentence."""
    return f"{update_in_words(folder)} in the format {precision}"


def moved_update_in_words(folder: str, move: str) -> str:
    """Where the update since a checkpoint was added, for a sentence."""
    return f"{update_in_words(folder)} {moved_in_words(move)}"


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
