"""Doubles of which one fault acts while the sampler generates.

A penalty, a bias, a ban or a truncation, next to a fault of prompts, weights or the computation. A
seed drew faults, sizes and families (no family twice in a group; every fault alone moves the
probabilities by more than .01, which was measured without attribution). The first group was written
before attribution learned from responses that become equal, the second one after that. Each group,
with the names that count, was written before its first run.
"""

from __future__ import annotations

from collections.abc import Iterator

from tests.probe.plants.draw import Drawn, Names

_CACHE = ("prefix-caching", "stale-cache", "mixed-weights")
_CUT = ("truncation",)
_MASK = ("structured-output", "logit-bias", "truncation", "wrong-sampler")
_PROMPT = ("prompt-ids",)
_ROPE = ("rope-base", "rope-scaling", "model-config")

FIRST: tuple[tuple[str, str, Names, Names], ...] = (
    ("helium", "mask_misrouted:2+begun", _MASK, _PROMPT),
    ("cohere", "repetition:1.20+last_lost", ("repetition-penalty",), _PROMPT),
    ("olmo", "hidden_top_p:0.91+activation:gelu", _CUT, ("activation",)),
    ("exaone_moe", "presence:0.96+rope_base_times:0.16", ("presence-penalty",), _ROPE),
    ("cohere2", "bias:9,2.4+kv:fp8", ("logit-bias",), ("kv-cache",)),
    ("glm4_moe", "hidden_top_k:8+quantised:int4", _CUT, ("quantisation",)),
    ("qwen2", "typical_p:0.69+norm_eps:0.18", ("typical-p", "truncation"), ("norm-epsilon",)),
    ("persimmon", "hidden_min_p:0.11+old_prefix_some:STALE", _CUT, _CACHE),
)
"""Family, faults, and the names that count for each; the older checkpoint is given."""

LATER: tuple[tuple[str, str, Names, Names], ...] = (
    ("vaultgemma", "repetition:1.25+begun_every:3", ("repetition-penalty",), _PROMPT),
    ("smollm3", "frequency:0.61+every_fourth:1.47", ("frequency-penalty",), ("temperature",)),
    ("starcoder2", "mask_misrouted:2+begun_every:2", _MASK, _PROMPT),
    ("gemma", "hidden_top_p:0.78+shift_third:1", _CUT, ("off-by-one",)),
    ("granite", "hidden_min_p:0.10+old_prefix_some:STALE", _CUT, _CACHE),
    ("cwm", "presence:0.94+begun_every:3", ("presence-penalty",), _PROMPT),
)
"""The same, written after the change; the other fault concerns some of the responses."""


def pairs() -> Iterator[Drawn]:
    """All pairs."""
    for group, doubles in (("generation-double", FIRST), ("generation-double-later", LATER)):
        for family, faults, one, other in doubles:
            yield Drawn(family, faults, (one, other), group, stale="STALE" in faults)
