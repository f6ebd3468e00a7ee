"""Settings of the user's framework that remove a gap between two engines, or correct for it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from grpodoctor.frameworks.registry import configurable_framework_named
from grpodoctor.frameworks.settings import framework_settings
from grpodoctor.probe.engines.engine_facts import EngineFacts
from grpodoctor.probe.results.results import Cell, Comparison, ProbeResult
from grpodoctor.probe.severity import measured_severity, severity_of
from grpodoctor.remedies.engines.tis import SETTINGS as TIS
from grpodoctor.remedies.trust_region.gspo import SETTINGS as GSPO
from grpodoctor.vocabulary.knobs import Setting

_CAPS = (2.0, 8.0)
"""Caps of truncated importance sampling, as in Yao et al. 2025."""
_FEW = 1e-2
"""Largest share of tokens that a cap may truncate; a cap that truncates more changes the
objective."""
_NOT_CORRECTABLE = frozenset(
    {
        *("prompt-ids", "eos-handling", "model-config"),
        *("stale-weights", "earlier-weights", "partial-sync"),
        *("temperature", "raw-logprobs", "wrong-sampler", "repetition-penalty"),
        *("presence-penalty", "frequency-penalty", "min-tokens", "logit-bias"),
        *("sampling-penalties", "adapter", "earlier-adapter"),
        *("off-by-one", "shuffled", "log-base", "scaled-logprobs", "averaging", "cumulative"),
        *("clipping", "rounding"),
    }
)
"""Causes that importance weights cannot correct: the two engines have different policies or tokens,
the values are not log-probabilities of these tokens, or they are not those of the distribution that
the sampler drew from."""
_DTYPES = ("float32", "bfloat16", "float16")


@dataclass(frozen=True, slots=True)
class RecommendedSetting:
    """A change to the configuration of a framework."""

    title: str
    lines: tuple[str, ...]
    """Settings to copy, or what to do if the framework has no such setting."""


@dataclass(frozen=True, slots=True)
class _Change:
    """A change in canonical settings."""

    title: str
    settings: Mapping[str, Setting]
    alternative: bool = False
    """Whether it is a second choice, left out for frameworks that do not have the setting."""


def recommended_settings(
    result: ProbeResult, cell: Cell, framework: str
) -> tuple[RecommendedSetting, ...]:
    """The settings against the causes of a gap, and against what remains of it.

    Args:
        result: the result that the cell belongs to.
        cell: a measured pair of engines.
        framework: framework of the run that will use these engines.

    Raises:
        ConfigError: if the framework is unknown.
    """
    framework = configurable_framework_named(framework).name
    if cell.comparison is None:
        return ()
    causes = [cause.cause for cause in cell.causes]
    changes = [
        change
        for cause in causes
        if cause in _CHANGES_BY_CAUSE
        for change in _CHANGES_BY_CAUSE[cause](result, cell)
    ]
    is_bad = measured_severity(cell) in ("warning", "critical")
    if is_bad and not _NOT_CORRECTABLE.intersection(causes):
        changes.append(_importance_weights(cell.comparison))
    settings = (_spelled(change, framework) for change in changes)
    return tuple(setting for setting in settings if setting is not None)


def recommendation(cell: Cell) -> str:
    """What to do about a gap, in one sentence; empty if the pair was not measured."""
    if cell.comparison is None:
        return ""
    if cell.untried and measured_severity(cell) in ("none", "info"):
        return (
            f"Recommendation: compare with an engine that supports {' and '.join(cell.untried)}, "
            "or sample without it."
        )
    if severity_of(cell) not in ("warning", "critical"):
        return "Recommendation: change nothing; no correction is needed for a gap of this size."
    faults = [cause for cause in cell.causes if cause.confidence != "possible"]
    wrong = [cause.title for cause in faults if cause.cause in _NOT_CORRECTABLE]
    if wrong:
        return (
            f"Recommendation: remove the cause ({wrong[0]}); importance weights do not correct it."
        )
    cap = _cap(cell.comparison)
    share = cell.comparison.effects.get(f"tis_token/{cap:g}")
    acts = "" if share is None else f", which acts on {share:.2%} of the tokens"
    first = "remove the cause if you can, and " if faults else ""
    return f"Recommendation: {first}use importance weights per token, capped at {cap:g}{acts}."


def _spelled(change: _Change, framework: str) -> RecommendedSetting | None:
    lines = framework_settings(change.settings, framework)
    missing = [line for line in lines if not line.key]
    if missing and change.alternative:
        return None
    if "loss" in change.settings and missing[:1] == lines[:1]:
        lines = lines[:1]  # the clip range of a loss is harmful without that loss
    return RecommendedSetting(change.title, tuple(line.commented_line for line in lines))


def _precision(result: ProbeResult, cell: Cell) -> Iterator[_Change]:
    sampler, learner = _dtype(result, cell.sampler), _dtype(result, cell.learner)
    if learner:
        yield _Change(f"run the sampler in {learner}, like the learner", {"sampler_dtype": learner})
    if "bfloat16" in (sampler, learner):
        both: dict[str, Setting] = {"sampler_dtype": "float16", "learner_dtype": "float16"}
        title = "alternatively, run both engines in float16: it rounds 8 times finer than bfloat16"
        yield _Change(title, both, alternative=True)
    if sampler in ("bfloat16", "float16"):
        title = "alternatively, compute the sampler's head in float32: it removes part of the gap"
        yield _Change(title, {"float32_head": True}, alternative=True)


def _dtype(result: ProbeResult, label: str) -> str:
    facts = result.engines.get(label)
    return facts.dtype if facts is not None and facts.dtype in _DTYPES else ""


def _layout(result: ProbeResult, cell: Cell) -> Iterator[_Change]:
    sampler = _tensor_parallel(result.engines.get(cell.sampler))
    learner = _tensor_parallel(result.engines.get(cell.learner))
    if sampler != learner:
        title = f"set the sampler's tensor parallel size to {learner}, like the learner's"
        yield _Change(title, {"sampler_tensor_parallel": learner})


def _tensor_parallel(facts: EngineFacts | None) -> int:
    return 1 if facts is None else facts.layout.get("tensor_parallel", 1)


def _unquantized(_: ProbeResult, cell: Cell) -> Iterator[_Change]:
    if "quantise=" in cell.learner:
        return
    title = "sample with unquantized weights"
    # The details list modules by effect, the largest first: `attention: 67% of the ...`.
    modules = [
        detail for cause in cell.causes if cause.cause == "quantisation" for detail in cause.details
    ]
    if modules and ": " in modules[0]:
        title += f", or keep at least these modules unquantized: {modules[0].partition(':')[0]}"
    yield _Change(title, {"unquantized_sampler": True})


def _routing(*_: object) -> Iterator[_Change]:
    yield _Change("replay the sampler's routing (R3)", {"routing_replay": "R3"})
    yield _Change("alternatively, use GSPO, the loss least affected by expert flips", GSPO)


def _temperature(result: ProbeResult, cell: Cell) -> Iterator[_Change]:
    figures = next(cause.figures for cause in cell.causes if cause.cause == "temperature")
    if figures.get("learner") != figures.get("asked"):
        title = "score at the sampling temperature in the learner"
        yield _Change(title, {"one_temperature": True})
        return
    temperature = result.settings.get("temperature")
    if isinstance(temperature, int | float):
        title = "set the same temperature in both engines"
        yield _Change(title, {"temperature": float(temperature)})


def _always(
    title: str, name: str, setting: Setting = True, *, alternative: bool = False
) -> _Changes:
    return lambda *_: iter([_Change(title, {name: setting}, alternative)])


_Changes = Callable[[ProbeResult, Cell], Iterator[_Change]]
_CHANGES_BY_CAUSE: Mapping[str, _Changes] = {
    "precision": _precision,
    "parallel-layout": _layout,
    "quantisation": _unquantized,
    "router-flips": _routing,
    "temperature": _temperature,
    "earlier-adapter": _always("sync the weights before every rollout", "sampler_sync_every", 1),
    "earlier-weights": _always("sync the weights before every rollout", "sampler_sync_every", 1),
    "stale-weights": _always("sync the weights before every rollout", "sampler_sync_every", 1),
    "kv-cache": _always("use an unquantized KV cache", "unquantized_cache"),
    "wrong-sampler": _always("disable top-p, top-k and min-p", "whole_distribution"),
    "repetition-penalty": _always(
        "sample without a repetition penalty", "no_repetition_penalty", alternative=True
    ),
    "truncation": _always("disable top-p, top-k and min-p", "whole_distribution"),
    "raw-logprobs": _always(
        "report log-probabilities after temperature and top-p", "processed_logprobs"
    ),
    "prefix-caching": _always(
        "disable the prefix cache, or reset it at each weight sync", "no_prefix_cache"
    ),
}
"""The changes against each cause."""


def _importance_weights(comparison: Comparison) -> _Change:
    cap = _cap(comparison)
    title = f"correct the remaining gap by importance weights, capped at {cap:g}"
    return _Change(title, {**TIS, "correction_cap": cap})


def _cap(comparison: Comparison) -> float:
    """The smallest cap that truncates few tokens; the largest cap if all truncate many."""
    for cap in _CAPS:
        if comparison.effects.get(f"tis_token/{cap:g}", 0.0) <= _FEW:
            return cap
    return _CAPS[-1]
