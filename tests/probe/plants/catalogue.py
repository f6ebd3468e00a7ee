"""The plants: families, faults, and the causes that name them correctly."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from tests.probe.plants import (
    eighth_draw,
    engine_bugs,
    exclusions,
    field_bugs,
    fifth_draw,
    fourth_draw,
    fresh,
    further,
    generation_doubles,
    issue_bugs,
    natural_draw,
    phase_faults,
    recurring_bugs,
    report_bugs,
    rewritten_kernels,
    second_draw,
    seventh_draw,
    sharded,
    similar,
    sixth_draw,
    third_draw,
    unseen_catalogue,
    upstream_bugs,
)
from tests.probe.plants.draw import Drawn
from tests.probe.plants.families import FAMILIES

MOE: tuple[str, ...] = ("mixtral", "qwen3_moe", "deepseek_v3")
MOE += (*engine_bugs.ROUTED, *field_bugs.ROUTED, *report_bugs.ROUTED, *issue_bugs.ROUTED)
MOE += (*upstream_bugs.ROUTED, *recurring_bugs.ROUTED, *rewritten_kernels.ROUTED)
MOE += (*natural_draw.ROUTED, *second_draw.ROUTED, *fourth_draw.ROUTED)
BIASED = ("gpt_neox", "phi")
ROTARY = tuple(family for family in FAMILIES if family != "deepseek_v3")


@dataclass(frozen=True)
class Plant:
    """One pair of engines of a family with known faults; healthy without faults."""

    family: str
    faults: str
    causes: tuple[frozenset[str], ...]
    """For each fault, the ids that name it correctly."""
    group: str = ""
    side: str = "sampler"
    stale: bool = False
    """Whether an older checkpoint is given as `--stale`."""
    options: dict[str, Any] = field(default_factory=dict)
    """Options of the faulty engine's program."""
    others: dict[str, Any] = field(default_factory=dict)
    """Options of the other engine."""
    sampling: dict[str, Any] = field(default_factory=dict)
    shared: bool = False
    """Whether the learner applies the requested truncation, too."""

    @property
    def name(self) -> str:
        """The family, the side and the faults."""
        shown = self.faults or "healthy"
        where = "" if self.side == "sampler" else " (learner)"
        more = "".join(f" {key}={value}" for key, value in self.options.items() if key != "weights")
        return f"{self.family}: {shown}{more}{where}"

    @property
    def key(self) -> str:
        """Distinguishes plants with equal names."""
        given = " stale" if self.stale else ""
        return f"{self.group}/{self.name}{given} {self.options}{self.others or ''}"


_COMPUTED: dict[str, tuple[str, tuple[str, ...]]] = {
    "window:12": ("sliding-window", ()),
    "without_window": ("sliding-window", ("mistral", "gemma2")),
    "rope_theta:500": ("rope-base", ROTARY),
    "rope_linear:2": ("rope-scaling", ROTARY),
    "rope_interleaved": ("rope-layout", ("llama", "qwen3", "mixtral")),
    "attention_scale:1.3": ("attention-scale", ()),
    "softcap:2": ("attention-soft-cap", ()),
    "without_softcap:final": ("logit-soft-cap", ("gemma2",)),
    "final_softcap:6": ("logit-soft-cap", ()),
    "embedding_scale:1.5": ("embedding-scale", ()),
    "embedding_scale:0.125": ("embedding-scale", ("gemma2",)),
    "norm_eps:0.1": ("norm-epsilon", ()),
    "qk_norm": ("qk-norm", ("qwen3", "qwen3_moe")),
    "without_bias:query_key_value": ("missing-bias", ("gpt_neox",)),
    "without_bias:q_proj": ("missing-bias", ("phi",)),
    "norm_offset:1": ("norm-offset", ("llama", "qwen3")),
    "norm_offset:-1": ("norm-offset", ("gemma2",)),
    "activation:gelu": ("activation", ("llama", "qwen3_moe")),
    "activation:relu": ("activation", ("gpt_neox",)),
    "router_k:1": ("router-top-k", MOE),
    "router_k:3": ("router-top-k", MOE),
    "router_bf16": ("router-precision", ("mixtral", "qwen3_moe")),
    "not_renormalised": ("router-weights", ("qwen3_moe", "deepseek_v3")),
    "kv:int8": ("kv-cache", ()),
    "kv:int4": ("kv-cache", ()),
    "kv:fp8": ("kv-cache", ()),
    "dtype:bfloat16": ("precision", ()),
    "quantised:int8": ("quantisation", ()),
    "quantised:int4": ("quantisation", ()),
    "quantised:fp8": ("quantisation", ()),
    "skip_layer:1": ("missing-layer", ()),
    "padded": ("attended-padding", ()),
    "begun": ("prompt-ids", ()),
    "dropout:0.1": ("nondeterminism", ()),
}
"""Cause and families (empty for all) by fault."""
_ALSO: dict[str, tuple[str, ...]] = {
    "embedding-scale": ("model-config",),
    "rope-scaling": ("rope-base",),
    "attended-padding": ("prompt-ids",),
}
_REPORTED: dict[str, str] = {
    "log2": "log-base",
    "log10": "log-base",
    "nll": "negated log-probabilities",
    "probabilities": "are probabilities",
    "rounded:2": "rounding",
    "rounded:1": "rounding",
    "rounded_probabilities:2": "rounding",
    "bf16_storage": "storage-precision",
    "averaged": "averaging",
    "smoothed:3": "averaging",
    "cumulative": "cumulative",
    "clipped:-3": "clipping",
    "clipped_above:-0.5": "clipping",
    "shift:1": "off-by-one",
    "shift:-2": "off-by-one",
    "shift:5": "off-by-one",
    "shift_half:1": "off-by-one",
    "shift_third:2": "off-by-one",
    "shuffled": "shuffled",
    "reversed": "shuffled",
    "responses_shuffled": "shuffled",
    "halved": "scaled-logprobs",
}
_SAMPLED: dict[str, str] = {
    "hidden_temperature:1.25": "temperature",
    "hidden_temperature:0.8": "temperature",
    "hidden_top_p:0.9": "truncation",
    "hidden_top_k:5": "truncation",
    "repetition:1.3": "repetition-penalty",
    "presence:0.8": "presence-penalty",
    "frequency:0.5": "frequency-penalty",
    "bias:7,2.0": "logit-bias",
    "banned:7,9": "logit-bias",
    "min_tokens:30": "min-tokens",
    "raw+repetition:1.3": "repetition-penalty",
    "raw+bias:7,2.0": "logit-bias",
}
_SEEN_ONLY = frozenset({"wrong-sampler"})
_PARTIAL = {
    "self_attn|attention|\\.attn": "partial-sync",
    r"layers\.1\.": "partial-sync",
    "norm": "partial-sync",
    "lm_head|embed_out": "partial-sync",
    "mlp|feed_forward": "partial-sync",
    "embed_tokens|embed_in": "partial-sync",
}
_DOUBLES: tuple[tuple[str, tuple[str, str]], ...] = (
    ("hidden_temperature:0.9+window:12", ("temperature", "sliding-window")),
    ("attention_scale:1.3+kv:int8", ("attention-scale", "kv-cache")),
    ("rope_theta:500+log10", ("rope-base", "log-base")),
    ("begun+dtype:bfloat16", ("prompt-ids", "precision")),
    ("norm_eps:0.1+window:12", ("norm-epsilon", "sliding-window")),
    ("embedding_scale:1.5+hidden_temperature:1.25", ("embedding-scale", "temperature")),
    ("shift:1+final_softcap:6", ("off-by-one", "logit-soft-cap")),
    ("hidden_top_p:0.9+rope_theta:500", ("truncation", "rope-base")),
)


def _ids(cause: str) -> frozenset[str]:
    return frozenset({cause, *_ALSO.get(cause, ())})


def plants(families: tuple[str, ...] = tuple(FAMILIES)) -> Iterator[Plant]:
    """All plants of some families; faults of reporting and sampling alternate among families."""
    for family in families:
        yield Plant(family, "", (), "healthy")
        for fault, (cause, limited) in _COMPUTED.items():
            if not limited or family in limited:
                yield Plant(family, fault, (_ids(cause),), "computed")
    for number, (fault, cause) in enumerate(_REPORTED.items()):
        for family in _some(families, number, 2):
            yield Plant(family, fault, (_ids(cause),), "reported")
    for number, (fault, cause) in enumerate(_SAMPLED.items()):
        for family in _some(families, number + 1, 2):
            seen = _SEEN_ONLY if fault.startswith("raw") else frozenset()
            yield Plant(family, fault, (_ids(cause) | seen,), "sampled")
    yield from _weights(families)
    yield from _learners(families)
    for number, (fault, causes) in enumerate(_DOUBLES):
        for family in _some(families, number, 3):
            yield Plant(family, fault, tuple(map(_ids, causes)), "double")
    yield from _further(families)


def _further(families: tuple[str, ...]) -> Iterator[Plant]:
    yield from (plant for plant in _all_further() if plant.family in families)


def _all_further() -> Iterator[Plant]:
    for fault, (accepted, of) in further.COMPUTED.items():
        for family in of:
            yield Plant(family, fault, (frozenset(accepted),), "further")
    for fault, (accepted, sampling, of) in further.SAMPLED.items():
        for family in of:
            yield Plant(family, fault, (frozenset(accepted),), "further", sampling=sampling)
    yield Plant("qwen3", "last_lost", (frozenset({"prompt-ids"}),), "further", side="learner")
    for family, fault, each in further.DOUBLES:
        yield Plant(family, fault, tuple(map(frozenset, each)), "further-double")


def _weights(families: tuple[str, ...]) -> Iterator[Plant]:
    untied = tuple(each for each in families if not FAMILIES[each][1].get("tie_word_embeddings"))
    for number, pattern in enumerate(_PARTIAL):
        for family in _some(untied if "head" in pattern else families, number, 2):
            yield Plant(
                family, "", (frozenset({"partial-sync"}),), "weights", stale=True,
                options={"weights": "STALE", "weights_only": pattern},
            )  # fmt: skip
    for family in _some(families, 3, 2):
        stale = frozenset({"stale-weights"})
        yield Plant(family, "", (stale,), "weights", stale=True, options={"weights": "STALE"})
        yield Plant(family, "noise:0.1", (frozenset({"unknown"}),), "weights")
        yield Plant(
            family, "hidden_temperature:0.9", (_ids("temperature"), frozenset({"partial-sync"})),
            "double", stale=True, options={"weights": "STALE", "weights_only": r"layers\.1\."},
        )  # fmt: skip


def _learners(families: tuple[str, ...]) -> Iterator[Plant]:
    faults = {
        "ignores_temperature": "temperature",
        "dropout:0.1": "nondeterminism",
        "window:12": "sliding-window",
        "log2": "log-base",
        "rope_theta:500": "rope-base",
    }
    for number, (fault, cause) in enumerate(faults.items()):
        sampling = {"temperature": 0.7} if fault == "ignores_temperature" else {}
        for family in _some(families, number + 2, 2):
            yield Plant(family, fault, (_ids(cause),), "learner", side="learner", sampling=sampling)


def _some(families: tuple[str, ...], start: int, count: int) -> list[str]:
    chosen = [families[(start + n * 4) % len(families)] for n in range(count)]
    return list(dict.fromkeys(chosen))


def unseen() -> Iterator[Plant]:
    """The plants of further families; see `unseen_catalogue`."""
    for family, options, others, sampling in unseen_catalogue.HEALTHY:
        yield Plant(
            family, "", (), "unseen-healthy", options=options, others=others, sampling=sampling
        )
    for family, fault, names in unseen_catalogue.COMPUTED:
        yield Plant(family, fault, (frozenset(names),), "unseen")
    for fault, (family, names, options) in unseen_catalogue.WEIGHTS.items():
        yield Plant(family, fault, (frozenset(names),), "unseen", stale=True, options=dict(options))
    for side, faults in (
        ("sampler", unseen_catalogue.SERVED), ("learner", unseen_catalogue.LEARNER)
    ):  # fmt: skip
        for fault, (family, names, sampling) in faults.items():
            yield Plant(family, fault, (frozenset(names),), "unseen", side=side, sampling=sampling)
    for family, names in unseen_catalogue.ADAPTERS:
        yield Plant(
            family, "", (frozenset(names),), "unseen",
            options={"adapter": unseen_catalogue.LOUD_ADAPTER},
            others={"adapter": unseen_catalogue.ADAPTER},
        )  # fmt: skip
    for family, fault, accepted in unseen_catalogue.DOUBLES:
        is_stale = ("partial-sync",) in accepted
        yield Plant(
            family, fault, tuple(map(frozenset, accepted)), "unseen-double", stale=is_stale,
            options=unseen_catalogue.STALE_LAYER if is_stale else {},
        )  # fmt: skip
    yield from _fresh()
    yield from _sharded()
    yield from _engine_bugs()
    yield from _field_bugs()
    yield from _report_bugs()
    yield from _issue_bugs()
    yield from _upstream_bugs()
    yield from _recurring_bugs()
    yield from _rewritten_kernels()
    draws = (natural_draw, second_draw, third_draw, fourth_draw, fifth_draw, sixth_draw)
    for draw in (*draws, seventh_draw, eighth_draw):
        yield from _drawn(draw.pairs())
    yield from _drawn(generation_doubles.pairs())
    yield from _exclusions()


def _exclusions() -> Iterator[Plant]:
    """The plants of `exclusions`."""
    for family, fault, names in exclusions.PAIRS:
        yield Plant(family, fault, (frozenset(names),), "exclusion")
    for family, options, sampling in exclusions.HEALTHY:
        yield Plant(
            family, "", (), "exclusion-healthy", options=options, others=options,
            sampling=sampling, shared=True,
        )  # fmt: skip


def _engine_bugs() -> Iterator[Plant]:
    """The plants of `engine_bugs`."""
    for family, options, others in engine_bugs.HEALTHY:
        yield Plant(family, "", (), "engine-bugs-healthy", options=options, others=others)
    for family, fault, names in engine_bugs.COMPUTED:
        yield Plant(family, fault, (frozenset(names),), "engine-bugs")
    for family, fault, names in engine_bugs.WEIGHTS:
        yield Plant(family, fault, (frozenset(names),), "engine-bugs", stale=True)
    for family, fault, names, sampling, is_shared in engine_bugs.SERVED:
        yield Plant(
            family, fault, (frozenset(names),), "engine-bugs", sampling=sampling, shared=is_shared
        )
    for family, fault, accepted in engine_bugs.DOUBLES:
        is_stale = ("partial-sync",) in accepted
        yield Plant(
            family, fault, tuple(map(frozenset, accepted)), "engine-bugs-double", stale=is_stale,
            options=unseen_catalogue.STALE_LAYER if is_stale else {},
        )  # fmt: skip


def _field_bugs() -> Iterator[Plant]:
    """The plants of `field_bugs`."""
    for family, options, others, sampling in field_bugs.HEALTHY:
        yield Plant(
            family, "", (), "field-bugs-healthy", options=options, others=others, sampling=sampling
        )
    for family, fault, names in (*field_bugs.COMPUTED, *field_bugs.SERVED):
        yield Plant(family, fault, (frozenset(names),), "field-bugs")
    for family, fault, names in field_bugs.LEARNER:
        yield Plant(family, fault, (frozenset(names),), "field-bugs", side="learner")
    for family, fault, names in field_bugs.WEIGHTS:
        yield Plant(family, fault, (frozenset(names),), "field-bugs", stale=True)
    for family, fault, accepted in field_bugs.DOUBLES:
        is_stale = ("partial-sync",) in accepted
        yield Plant(
            family, fault, tuple(map(frozenset, accepted)), "field-bugs-double", stale=is_stale,
            options=unseen_catalogue.STALE_LAYER if is_stale else {},
        )  # fmt: skip


def _report_bugs() -> Iterator[Plant]:
    """The plants of `report_bugs`; both engines have the adapter that a fault concerns."""
    for family, options, others, sampling in report_bugs.HEALTHY:
        yield Plant(
            family, "", (), "reports-healthy", options=options, others=others, sampling=sampling
        )
    for family, fault, names in report_bugs.SINGLES:
        own = {"adapter": "ADAPTER"} if "ADAPTER" in fault else {}
        yield Plant(family, fault, (frozenset(names),), "reports", options=own, others=own)
    for family, fault, accepted in report_bugs.DOUBLES:
        own = {"adapter": "ADAPTER"} if "ADAPTER" in fault else {}
        is_stale = ("partial-sync",) in accepted
        yield Plant(
            family, fault, tuple(map(frozenset, accepted)), "reports-double", stale=is_stale,
            options=unseen_catalogue.STALE_LAYER if is_stale else own, others=own,
        )  # fmt: skip


def _issue_bugs() -> Iterator[Plant]:
    """The plants of `issue_bugs`; both engines have the adapter that a fault concerns."""
    for family, fault, names in issue_bugs.SINGLES:
        own = {"adapter": "ADAPTER"} if "ADAPTER" in fault else {}
        yield Plant(
            family, fault, (frozenset(names),), "issue-bugs", stale="STALE" in fault, options=own,
            others=own,
        )  # fmt: skip
    for family, fault, names, sampling in issue_bugs.LEARNER:
        yield Plant(
            family, fault, (frozenset(names),), "issue-bugs", side="learner", sampling=sampling
        )
    for family, options, others, sampling in issue_bugs.HEALTHY:
        yield Plant(
            family, "", (), "issue-bugs-healthy", options=options, others=others, sampling=sampling
        )
    for family, fault, accepted in issue_bugs.DOUBLES:
        is_stale = ("partial-sync",) in accepted
        yield Plant(
            family, fault, tuple(map(frozenset, accepted)), "issue-bugs-double", stale=is_stale,
            options=unseen_catalogue.STALE_LAYER if is_stale else {},
        )  # fmt: skip


def _upstream_bugs() -> Iterator[Plant]:
    """The plants of `upstream_bugs`; both engines have the adapter that a fault concerns."""
    for family, options, others, sampling in upstream_bugs.HEALTHY:
        yield Plant(
            family, "", (), "upstream-bugs-healthy", options=options, others=others,
            sampling=sampling,
        )  # fmt: skip
    for family, fault, names in upstream_bugs.SINGLES:
        own = {"adapter": "ADAPTER"} if "ADAPTER" in fault else {}
        yield Plant(
            family, fault, (frozenset(names),), "upstream-bugs", stale="STALE" in fault,
            options=own, others=own,
        )  # fmt: skip
    for family, fault, names in upstream_bugs.LEARNER:
        yield Plant(family, fault, (frozenset(names),), "upstream-bugs", side="learner")
    for family, fault, accepted in upstream_bugs.DOUBLES:
        is_stale = ("partial-sync",) in accepted
        yield Plant(
            family, fault, tuple(map(frozenset, accepted)), "upstream-bugs-double", stale=is_stale,
            options=unseen_catalogue.STALE_LAYER if is_stale else {},
        )  # fmt: skip


def _recurring_bugs() -> Iterator[Plant]:
    """The plants of `recurring_bugs`."""
    for family, options, others, sampling in recurring_bugs.HEALTHY:
        yield Plant(
            family, "", (), "recurring-bugs-healthy", options=options, others=others,
            sampling=sampling,
        )  # fmt: skip
    for side, faults in (("sampler", recurring_bugs.SINGLES), ("learner", recurring_bugs.LEARNER)):
        for family, fault, names in faults:
            yield Plant(family, fault, (frozenset(names),), "recurring-bugs", side=side)
    for family, fault, accepted in recurring_bugs.DOUBLES:
        is_stale = ("partial-sync",) in accepted
        yield Plant(
            family, fault, tuple(map(frozenset, accepted)), "recurring-bugs-double",
            stale=is_stale, options=unseen_catalogue.STALE_LAYER if is_stale else {},
        )  # fmt: skip


def _rewritten_kernels() -> Iterator[Plant]:
    """The plants of `rewritten_kernels`."""
    module = rewritten_kernels
    for family, options, others, sampling in module.HEALTHY:
        yield Plant(
            family, "", (), "rewritten-kernels-healthy", options=options, others=others,
            sampling=sampling,
        )  # fmt: skip
    for side, faults in (("sampler", module.SINGLES), ("learner", module.LEARNER)):
        for family, fault, names in faults:
            yield Plant(family, fault, (frozenset(names),), "rewritten-kernels", side=side)
    for family, fault, accepted in module.DOUBLES:
        is_stale = ("partial-sync",) in accepted
        yield Plant(
            family, fault, tuple(map(frozenset, accepted)), "rewritten-kernels-double",
            stale=is_stale, options=unseen_catalogue.STALE_LAYER if is_stale else {},
        )  # fmt: skip


def _drawn(pairs: Iterator[Drawn]) -> Iterator[Plant]:
    """The plants of the natural draws."""
    for each in pairs:
        named = {name: value for name, value in vars(each).items() if name != "causes"}
        yield Plant(causes=tuple(map(frozenset, each.causes)), **named)


def _sharded() -> Iterator[Plant]:
    """The plants of faulty parts and phases; see `sharded`, `phase_faults`."""
    for family, fault, names in sharded.SINGLES:
        yield Plant(family, fault, (frozenset(names),), "sharded")
    for family, fault, names, is_stale in phase_faults.SINGLES:
        yield Plant(family, fault, (frozenset(names),), "phases", stale=is_stale)
    for family, fault, accepted, is_stale in sharded.DOUBLES:
        yield Plant(
            family, fault, tuple(map(frozenset, accepted)), "sharded-double", stale=is_stale,
            options=unseen_catalogue.STALE_LAYER if is_stale else {},
        )  # fmt: skip


def _fresh() -> Iterator[Plant]:
    """The plants of `fresh`, and similar doubles."""
    for family, fault, names, side in fresh.SINGLES:
        yield Plant(family, fault, (frozenset(names),), "fresh", side=side)
    for family, fault, accepted, side, is_stale in fresh.DOUBLES:
        yield Plant(
            family, fault, tuple(map(frozenset, accepted)), "fresh-double", side=side,
            stale=is_stale, options=unseen_catalogue.STALE_LAYER if is_stale else {},
        )  # fmt: skip
    for family, fault, accepted, is_stale in similar.DOUBLES:
        yield Plant(
            family, fault, tuple(map(frozenset, accepted)), "similar-double", stale=is_stale,
            options=unseen_catalogue.STALE_LAYER if is_stale else {},
        )  # fmt: skip
