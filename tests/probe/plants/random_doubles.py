"""Doubles that a seed draws: two faults that the search knows alone, on the family of the first.

The first fault is any single one of another set; its cause is drawn uniformly, then the pair. The
second one is of a kind that any family can have. So no author chooses which two faults meet.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from tests.probe.plants.catalogue import Plant, plants, unseen

GROUP = "random-double"
_ALONE = frozenset({
    "unknown", "nondeterminism", "dropout", "batch-variance", "generation-path",
    "speculative-decoding", "duplicate-samples", "wrong-sampler", "long-prompts",
    "subset-of-sequences", "router-flips", "chunked-prefill",
})  # fmt: skip
"""Causes next to which, as documented, no second one is searched, or that have no experiment."""
_ANY_FAMILY: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("window:12", ("sliding-window",)),
    ("attention_scale:1.3", ("attention-scale",)),
    ("softcap:2", ("attention-soft-cap",)),
    ("final_softcap:6", ("logit-soft-cap",)),
    ("norm_eps:0.1", ("norm-epsilon",)),
    ("embedding_scale:1.5", ("embedding-scale", "model-config")),
    ("kv:int4", ("kv-cache",)),
    ("kv:fp8", ("kv-cache",)),
    ("quantised:int4", ("quantisation",)),
    ("fp8_products:32", ("quantisation", "precision")),
    ("begun", ("prompt-ids",)),
    ("last_lost", ("prompt-ids",)),
    ("system_prompt:3", ("prompt-ids",)),
    ("hidden_temperature:1.25", ("temperature",)),
    ("hidden_temperature:0.8", ("temperature",)),
    ("hidden_top_p:0.9", ("truncation",)),
    ("hidden_top_k:8", ("truncation",)),
    ("hidden_min_p:0.1", ("truncation",)),
    ("repetition:1.15", ("repetition-penalty", "sampling-penalties", "requested-penalties")),
    ("presence:0.8", ("presence-penalty", "sampling-penalties", "requested-penalties")),
    ("bias:7,2.0", ("logit-bias",)),
    ("banned:7,9", ("logit-bias",)),
    ("shift:1", ("off-by-one",)),
    ("averaged", ("averaging",)),
    ("clipped:-3", ("clipping",)),
    ("samples_rotated", ("shuffled", "responses-order", "swapped-responses")),
)
"""Second faults, and the causes that name them correctly."""


def random_doubles(seed: int, matters: Callable[[Plant], bool]) -> Iterator[Plant]:
    """Doubles of which each fault matters alone, without end.

    Args:
        seed: of the draw, which is a part of the group's name.
        matters: whether a pair with one of the faults has a gap that matters.
    """
    generator = random.Random(seed)
    firsts = _by_cause([*plants(), *unseen()])
    drawn: set[str] = set()
    while True:
        first = generator.choice(firsts[generator.choice(sorted(firsts))])
        fault, names = generator.choice(_ANY_FAMILY)
        if _is_same_kind(first, fault, frozenset(names)):
            continue
        double = replace(
            first,
            faults="+".join(each for each in (first.faults, fault) if each),
            causes=(*first.causes, frozenset(names)),
            group=f"{GROUP}-{seed}",
        )
        if double.key in drawn or not all(matters(each) for each in _alone(first, fault)):
            continue
        drawn.add(double.key)
        yield double


def random_double(key: str) -> Plant:
    """The double that a seed draws with a key, whether or not its faults matter."""
    seed = int(key.partition("/")[0].rpartition("-")[2])
    return next(each for each in random_doubles(seed, lambda _: True) if each.key == key)


def _by_cause(known: Sequence[Plant]) -> dict[str, list[Plant]]:
    """The pairs with one fault of the sampler that can be told, by the first name of its cause."""
    found: dict[str, list[Plant]] = defaultdict(list)
    for plant in known:
        if len(plant.causes) != 1 or plant.side != "sampler" or plant.causes[0] & _ALONE:
            continue
        # A cause that an error names is none, and old weights need the older checkpoint.
        is_old = "STALE" in f"{plant.faults} {plant.options}"
        if plant.shared or any(" " in name for name in plant.causes[0]):
            continue
        if plant.stale or not is_old:
            found[min(plant.causes[0])].append(plant)
    return found


def _is_same_kind(first: Plant, fault: str, names: frozenset[str]) -> bool:
    kinds = {each.partition(":")[0] for each in first.faults.split("+")}
    return bool(names & first.causes[0]) or fault.partition(":")[0] in kinds


def _alone(first: Plant, fault: str) -> tuple[Plant, Plant]:
    """The pair with either fault."""
    kept = {key: value for key, value in first.options.items() if not key.startswith("weights")}
    is_both = "adapter" in first.others
    options = kept if is_both else {}
    return first, replace(first, faults=fault, options=options, stale=False)
