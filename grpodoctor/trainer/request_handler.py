"""Answers to what is asked of the live run: changed knobs, a refusal, a line in the journal."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from grpodoctor.errors import InputError
from grpodoctor.runs.records import Event
from grpodoctor.support.safe_text import printable
from grpodoctor.trainer.config.knobs import apply_change, knobs_of
from grpodoctor.trainer.config.train_config import TrainConfig
from grpodoctor.treatment.requests import Refused, Request, validate
from grpodoctor.vocabulary.knobs import Setting


@dataclass(frozen=True, slots=True)
class Answer:
    """What became of a request."""

    event: Event
    config: TrainConfig
    """In force from now on."""
    changed: Mapping[str, Setting] = field(default_factory=dict)


def answer(
    request: Request | Refused,
    config: TrainConfig,
    step: int,
    prepare: Callable[[TrainConfig], None],
) -> Answer:
    """Obey a request, or say why not.

    Args:
        request: from the mailbox.
        config: in force.
        step: the step that is about to be taken.
        prepare: brings about what a changed configuration needs; an `InputError` refuses it.
    """
    if isinstance(request, Refused):
        return Answer(Event("treatment-refused", step, request.body()), config)
    if request.kind == "note":
        return Answer(request.as_event(), config)
    knobs = knobs_of(config)
    checked = validate(request, knobs)
    if isinstance(checked, Refused):
        return Answer(Event("treatment-refused", step, checked.body()), config)
    try:
        changed = apply_change(config, checked)
        prepare(changed)
    except InputError as error:
        refused = Refused("", printable(str(error), 300), request)
        return Answer(Event("treatment-refused", step, refused.body()), config)
    before = {knob: knobs[knob] for knob in checked}
    body = {**request.body(), "before": before, "after": checked}
    return Answer(Event("treatment-applied", step, body), changed, checked)
