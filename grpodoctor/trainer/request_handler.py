"""Handles requests to a live run: applies a change of knobs, or refuses it with a reason."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from grpodoctor.errors import InputError
from grpodoctor.runs.records import Event
from grpodoctor.support.safe_text import printable
from grpodoctor.trainer.config.knobs import apply_change, knobs_of
from grpodoctor.trainer.config.train_config import TrainConfig
from grpodoctor.trainer.model.checkpoint import best_checkpoint
from grpodoctor.treatment.requests import Refused, Request, validate
from grpodoctor.vocabulary.knobs import Setting


@dataclass(frozen=True, slots=True)
class HandledRequest:
    """The result of a request."""

    event: Event
    config: TrainConfig
    """The configuration from now on."""
    changed: Mapping[str, Setting] = field(default_factory=dict)
    """Knobs that changed, with their new settings."""


def handle_request(
    request: Request | Refused,
    config: TrainConfig,
    step: int,
    prepare: Callable[[TrainConfig], None],
) -> HandledRequest:
    """Apply a request, or refuse it and say why.

    `prepare` sets up what a changed configuration needs; if it raises `InputError`, the request
    is refused.
    """
    if isinstance(request, Refused):
        return _refused(request, config, step)
    if request.kind == "note":
        return HandledRequest(request.as_event(), config)
    knobs = knobs_of(config)
    changed = validate(request, knobs)
    if isinstance(changed, Refused):
        return _refused(changed, config, step)
    try:
        new_config = apply_change(config, changed)
        prepare(new_config)
    except InputError as error:
        return _refused(Refused("", printable(str(error), 300), request), config, step)
    before = {knob: knobs[knob] for knob in changed}
    body = {**request.body(), "before": before, "after": changed}
    return HandledRequest(Event(request.applied_kind, step, body), new_config, changed)


def _refused(refusal: Refused, config: TrainConfig, step: int) -> HandledRequest:
    return HandledRequest(Event("treatment-refused", step, refusal.body()), config)


def naming_checkpoint(event: Event, run_dir: Path) -> Event:
    """The advice to stop, with the checkpoint that is kept; other events as they are."""
    if event.kind != "treatment-stopped":
        return event
    best = best_checkpoint(run_dir)
    kept = "The run has no checkpoint with a held-out evaluation."
    if best is not None:
        path, heldout = best
        kept = f"Its best checkpoint is kept: {path.relative_to(run_dir)} (held out {heldout:.3g})."
    return replace(event, body={**event.body, "verdict": f"{event.body.get('verdict', '')} {kept}"})
