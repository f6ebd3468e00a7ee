"""What to set for a gap, in the words of the user's framework."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from grpodoctor.frameworks.registry import configurable_framework_named
from grpodoctor.frameworks.settings import framework_settings
from grpodoctor.probe.engines.engine_facts import EngineFacts
from grpodoctor.probe.results.results import Cell, Comparison, ProbeResult
from grpodoctor.probe.severity import severity_of
from grpodoctor.remedies.engines.tis import SETTINGS as TIS
from grpodoctor.remedies.loss.gspo import SETTINGS as GSPO
from grpodoctor.report.run.phrases import counted, setting_line
from grpodoctor.vocabulary.knobs import Setting

_CAPS = (2.0, 8.0)
"""Of truncated importance sampling: those that Yao et al. 2025 use."""
_FEW = 1e-2
"""Share of tokens beyond a cap up to which it is an exception, and not a second objective."""
_MENDED_AT_THE_SOURCE = frozenset(
    {
        "prompt-ids", "off-by-one", "eos-handling", "stale-weights", "partial-sync", "model-config",
        "temperature", "raw-logprobs", "wrong-sampler",
    }
)  # fmt: skip
"""Causes that no weight makes up for: the two sides do not speak of the same policy or tokens, or
the sampler's log-probabilities are not those of what it has drawn from."""
_DTYPES = ("float32", "bfloat16", "float16")


@dataclass(frozen=True, slots=True)
class Advised:
    """One thing to set."""

    title: str
    lines: tuple[str, ...]
    """Settings as one would type them, or what the framework has instead."""


@dataclass(frozen=True, slots=True)
class _Wanted:
    """The same in canonical words."""

    title: str
    settings: Mapping[str, Setting]
    instead: bool = False
    """Another way to the same end, not worth telling where the framework lacks it."""


def advised(result: ProbeResult, cell: Cell, framework: str) -> tuple[Advised, ...]:
    """What to set in a framework against the causes of a gap, and for what is left of it.

    Args:
        result: the cell's.
        cell: a pair that was measured.
        framework: of the run that is going to use these engines.

    Raises:
        ConfigError: if there is no such framework.
    """
    named = configurable_framework_named(framework).name
    if cell.comparison is None:
        return ()
    causes = [cause.cause for cause in cell.causes]
    wanted = [
        each for cause in causes if cause in _AGAINST for each in _AGAINST[cause](result, cell)
    ]
    is_bad = severity_of(cell) in ("warning", "critical")
    if is_bad and not _MENDED_AT_THE_SOURCE.intersection(causes):
        wanted.append(_weights(cell.comparison))
    told = (_told(each, named) for each in wanted)
    return tuple(each for each in told if each is not None)


def _told(wanted: _Wanted, framework: str) -> Advised | None:
    lines = framework_settings(wanted.settings, framework)
    lacking = [each for each in lines if not each.key]
    if lacking and wanted.instead:
        return None
    if "loss" in wanted.settings and lacking[:1] == lines[:1]:
        lines = lines[:1]  # without the loss its clips would do harm
    return Advised(wanted.title, tuple(setting_line(each) for each in lines))


def _precision(result: ProbeResult, cell: Cell) -> Iterator[_Wanted]:
    sampler, learner = _dtype(result, cell.sampler), _dtype(result, cell.learner)
    if learner:
        yield _Wanted(f"run the sampler in {learner}, as the learner", {"sampler_dtype": learner})
    if "bfloat16" in (sampler, learner):
        both: dict[str, Setting] = {"sampler_dtype": "float16", "learner_dtype": "float16"}
        title = "or run both sides in float16, which rounds eight times finer than bfloat16"
        yield _Wanted(title, both, instead=True)
    if sampler in ("bfloat16", "float16"):
        title = "or compute the sampler's output head in float32, which takes away a part"
        yield _Wanted(title, {"float32_head": True}, instead=True)


def _dtype(result: ProbeResult, label: str) -> str:
    facts = result.engines.get(label)
    return facts.dtype if facts is not None and facts.dtype in _DTYPES else ""


def _layout(result: ProbeResult, cell: Cell) -> Iterator[_Wanted]:
    theirs, ours = (_degree(result.engines.get(each)) for each in (cell.sampler, cell.learner))
    if theirs != ours:
        title = f"put each layer of the sampler on {counted(ours, 'device')}, as the learner does"
        yield _Wanted(title, {"sampler_tensor_parallel": ours})


def _degree(facts: EngineFacts | None) -> int:
    return 1 if facts is None else facts.layout.get("tensor_parallel", 1)


def _unquantised(_: ProbeResult, cell: Cell) -> Iterator[_Wanted]:
    if "quantise=" in cell.learner:
        return
    title = "sample with weights that are not quantised"
    # Modules stand in the order of what quantising them does, such as `attention: 67% of the ...`.
    modules = [
        each for cause in cell.causes if cause.cause == "quantisation" for each in cause.details
    ]
    if modules and ": " in modules[0]:
        title += f", or at least not those with most of the effect ({modules[0].partition(':')[0]})"
    yield _Wanted(title, {"unquantized_sampler": True})


def _routing(*_: object) -> Iterator[_Wanted]:
    yield _Wanted("replay the sampler's routing (R3)", {"routing_replay": "R3"})
    yield _Wanted("or take GSPO, which flips disturb least", GSPO)


def _temperature(result: ProbeResult, _: Cell) -> Iterator[_Wanted]:
    asked = result.settings.get("temperature")
    if isinstance(asked, int | float):
        title = "set the temperature that was asked for, on both sides"
        yield _Wanted(title, {"temperature": float(asked)})


def _always(title: str, name: str, setting: Setting = True) -> _Answer:
    return lambda *_: iter([_Wanted(title, {name: setting})])


_Answer = Callable[[ProbeResult, Cell], Iterator[_Wanted]]
_AGAINST: Mapping[str, _Answer] = {
    "precision": _precision,
    "parallel-layout": _layout,
    "quantisation": _unquantised,
    "router-flips": _routing,
    "temperature": _temperature,
    "stale-weights": _always("sync the weights before every rollout", "sampler_sync_every", 1),
    "kv-cache": _always("keep a cache that is not quantised", "unquantized_cache"),
    "truncation": _always("sample from the whole distribution", "whole_distribution"),
    "raw-logprobs": _always("report log-probabilities of what is drawn from", "processed_logprobs"),
    "prefix-caching": _always(
        "do without the prefix cache, or empty it at each sync", "no_prefix_cache"
    ),
}
"""What a framework is asked for, by the cause."""


def _weights(comparison: Comparison) -> _Wanted:
    cap = _cap(comparison)
    title = f"correct for what is left by importance weights, capped at {cap:g} for this gap"
    return _Wanted(title, {**TIS, "correction_cap": cap})


def _cap(comparison: Comparison) -> float:
    """The smallest cap that is an exception for this gap; the largest if none is."""
    for cap in _CAPS:
        if comparison.effects.get(f"tis_token/{cap:g}", 0.0) <= _FEW:
            return cap
    return _CAPS[-1]
