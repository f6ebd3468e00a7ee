"""The causes of what-if edits whose value shows another cause than their name."""

from __future__ import annotations

import re

from grpodoctor.probe.attribution.edit_causes.computed_cause import ComputedCause


def cause_of_value(name: str, value: object) -> ComputedCause | None:
    """The cause of an edit whose value shows another one than its name; None if it does not."""
    if name == "without_bias" and "correction_bias" in str(value):
        return _ROUTER_BIAS
    if name == "router_weights" and value == "corrected":
        return _CORRECTED
    if name == "kv_cache" and str(value).startswith("values in "):
        return _VALUES_ALONE
    if name == "weights_from" and isinstance(value, list) and re.search("norm|ln_", str(value[1])):
        return _OTHER_NORM
    if name == "without_norm" and re.search(r"(^|,)([qk]|query|key)_(layer)?norm", str(value)):
        return _QK_NORM
    return None


_ROUTER_BIAS = ComputedCause(
    "router-bias", "The {side} ignores the bias of the routers' choice", "{value} set to zero",
    "Check that the engine loads e_score_correction_bias and adds it before it chooses experts, "
    "and that syncs include it: it is a buffer, no parameter.",
)  # fmt: skip
_CORRECTED = ComputedCause(
    "router-weights", "The {side} weights experts by corrected scores",
    "experts weighted by scores with the bias of the choice",
    "Use the correction bias to choose experts only; weight them by their uncorrected scores.",
)  # fmt: skip
_VALUES_ALONE = ComputedCause(
    "kv-cache", "The {side} rounds the values of attention (cache, or output of the projection)",
    "{value}",
    'Keep the cache in the precision of the model (vLLM: kv_cache_dtype="auto"), and check what '
    "rounds the output of the value projection: both have the same effect.",
)  # fmt: skip
_OTHER_NORM = ComputedCause(
    "norm-weights", "The {side} uses the weights of another norm", "{value}",
    "Check the names of the norms in the conversion of the checkpoint.",
)  # fmt: skip


_QK_NORM = ComputedCause(
    "qk-norm", "The {side} skips the norms of queries and keys", "{value} skipped",
    "Check that the engine's implementation of this model family applies every norm.",
)  # fmt: skip
