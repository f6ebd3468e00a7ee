"""The command of `grpodoctor probe` that tests a likely cause on the recorded responses."""

from __future__ import annotations

import shlex
from dataclasses import replace
from pathlib import Path
from urllib.parse import quote

from grpodoctor.probe.run_mismatch.run_source import (
    FreshWeights,
    RunSource,
    first_weights,
    fresh_weights,
)
from grpodoctor.probe.run_mismatch.signatures import CauseKind, LikelyCause

_RESPONSES = 64
"""Responses that a fresh engine scores: enough for every cause that concerns all tokens."""
_PLACEHOLDER = "MODEL"
_AND = "&&"
_SIDES = ("sampler", "learner")
_RECORDS = frozenset[CauseKind]({"log-unit", "shifted", "storage-precision"})
"""Causes that the two recorded columns prove without a model."""
_READINGS: dict[CauseKind, str] = {
    "unknown": "The side that is further from the fresh engine is wrong.",
    "undelivered-weights": "The side that is further from the fresh engine has old weights.",
    "jump": "The side that is further from the fresh engine is the one that changed.",
}
"""How to read the result, for causes that leave open which side is wrong."""


def with_command(cause: LikelyCause, source: RunSource, since: int) -> LikelyCause:
    """The cause with the command of its experiment, as far as the records allow one.

    Args:
        cause: the cause.
        source: the run.
        since: first step that has the difference.
    """
    if not cause.experiment or not _is_scorable(source):
        return cause
    if cause.kind in _RECORDS:
        specs = [_recorded(source, side, source.steps[-1], {}) for side in _SIDES]
        return replace(cause, command=_joined(source, specs[:1], specs[1]))
    is_stale = cause.kind == "undelivered-weights"
    weights = first_weights(source) if is_stale else fresh_weights(source, since)
    sides = _SIDES if cause.kind in _READINGS else ("sampler",)
    model = weights.model or _PLACEHOLDER
    options = {"responses": str(_RESPONSES)}
    if cause.kind == "few-responses":
        options = {}  # the few may be any of them
    if source.ids == "responses":
        options["tokenizer"] = quote(model, safe="/:~")
    is_from_start = is_stale and bool(source.model)
    reading = "" if is_from_start else _READINGS.get(cause.kind, "")
    samplers = [_recorded(source, side, weights.step, options) for side in sides]
    learner = f"transformers:{_model_of(source, weights)}?dtype=float32"
    # The search for a cause would explain the updates in between.
    compares_sides = cause.kind in _READINGS and weights.is_other
    return replace(
        cause,
        command=_joined(source, samplers, learner, attribution=not compares_sides),
        note=" ".join(filter(None, (reading, weights.note))),
    )


def command_lines(command: str) -> list[str]:
    """The command with one option a line, to be pasted into a shell as it is."""
    lines: list[str] = []
    for word in shlex.split(command):
        shown = word if word == _AND else shlex.quote(word)
        if not lines or word.startswith("--"):
            lines.append(shown if not lines else f"  {shown}")
        else:
            lines[-1] += f" {shown}"
    return [f"{line} \\" for line in lines[:-1]] + lines[-1:]


def _joined(
    source: RunSource, samplers: list[str], learner: str, *, attribution: bool = True
) -> str:
    words = ["grpodoctor", "probe"]
    for spec in samplers:
        words += ["--sampler", spec]
    words += ["--learner", learner]
    if source.temperature != 1:
        words += ["--temperature", f"{source.temperature:g}"]
    if not attribution:
        words.append("--no-attribution")
    command = shlex.join(words)
    return f"{shlex.join(['cd', str(source.run)])} {_AND} {command}" if _is_odd(source) else command


def _recorded(source: RunSource, side: str, step: int, options: dict[str, str]) -> str:
    values = {"side": side, "step": str(step), **options}
    run = "." if _is_odd(source) else _below(str(source.run))
    return f"recorded:{run}?{'&'.join(f'{name}={value}' for name, value in values.items())}"


def _model_of(source: RunSource, weights: FreshWeights) -> str:
    """The model of an engine, from where the command runs."""
    model = Path(weights.model)
    if _is_odd(source) and model.is_relative_to(source.run):
        return model.relative_to(source.run).as_posix()
    return weights.model or _PLACEHOLDER


def _is_scorable(source: RunSource) -> bool:
    """Whether the records have token ids, and a path that can be written as an engine."""
    return source.ids != "none" and (source.run.is_dir() or not _is_odd(source))


def _is_odd(source: RunSource) -> bool:
    """Whether the path would end at its question mark, where an engine's options begin."""
    return "?" in str(source.run)


def _below(path: str) -> str:
    """A path that is not read as that of a home directory."""
    return f"./{path}" if path.startswith("~") else path
