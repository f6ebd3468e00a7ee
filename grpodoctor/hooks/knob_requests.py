"""Requests from the run's mailbox, put in force between two steps."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping

import orjson

from grpodoctor.errors import InputError
from grpodoctor.hooks.live_knobs import LiveKnobs
from grpodoctor.hooks.ranks.exchange import RankExchange
from grpodoctor.runs.records import Event
from grpodoctor.support.safe_text import printable
from grpodoctor.treatment.mailbox import Inbox
from grpodoctor.treatment.requests import Refused, Request, validate
from grpodoctor.vocabulary.knobs import Setting

_DELAY = 2
"""Steps from reading a request to its change, with several ranks. A rank at its next step may not
see the request yet. One step later all ranks have exchanged gradients since, so all of them see it
and change at the same step."""

_LONGEST_REASON = 300
_MOST_REFUSALS = 4
"""Refusals of a step that the journal lists one by one: a flood of requests must not flood it."""


class KnobRequests:
    """Takes requests, applies them on every rank at the same step, and writes the journal.

    Args:
        knobs: the knobs of the training.
        inbox: the mailbox; None on ranks that do not read it.
        exchange: the connection to the other ranks; None with a single process.
        write: adds an event to the journal.
    """

    def __init__(
        self,
        knobs: LiveKnobs,
        inbox: Inbox | None,
        exchange: RankExchange | None,
        write: Callable[[Event], None],
    ) -> None:
        self._knobs, self._inbox, self._exchange, self._write = knobs, inbox, exchange, write
        self._calls = self._refusals = 0
        self._due: defaultdict[int, list[Request]] = defaultdict(list)

    def begin_step(self, step: int) -> None:
        """Apply what is due at this step; every rank calls it equally often."""
        self._calls += 1
        self._refusals = 0
        for request in self._inbox.take(step) if self._inbox else ():
            self._take(request, step)
        if self._exchange is not None:
            self._pass_on(self._exchange)
        for request in self._due.pop(self._calls, ()):
            self._apply(request, step)
        if (more := self._refusals - _MOST_REFUSALS) > 0:
            rest = Refused("", f"{more} more requests of this step were refused")
            self._write(Event("treatment-refused", step, rest.body()))

    def _refuse(self, refused: Refused, step: int) -> None:
        self._refusals += 1
        if self._refusals <= _MOST_REFUSALS:
            self._write(Event("treatment-refused", step, refused.body()))

    def _take(self, request: Request | Refused, step: int) -> None:
        if isinstance(request, Request) and request.kind == "note":
            self._write(request.as_event())
            return
        checked = request if isinstance(request, Refused) else self._checked(request)
        if isinstance(checked, Refused):
            self._refuse(checked, step)
        else:
            delay = 0 if self._exchange is None else _DELAY
            self._due[self._calls + delay].append(checked)

    def _checked(self, request: Request) -> Request | Refused:
        try:
            self._knobs.check(request.changes)  # first, because it knows what to do instead
        except InputError as error:
            return _refused(request, error)
        changes = validate(request, self._knobs.changeable())
        return changes if isinstance(changes, Refused) else request

    def _pass_on(self, exchange: RankExchange) -> None:
        """Rank 0 posts the requests for a later step; the others read those of this step."""
        if self._inbox is not None:
            later = self._calls + _DELAY
            if later in self._due:
                texts = [request.to_bytes().decode() for request in self._due[later]]
                exchange.post(_name(later), orjson.dumps(texts))
        elif (data := exchange.peek(_name(self._calls))) is not None:
            requests = [Request.from_bytes(text.encode()) for text in orjson.loads(data)]
            self._due[self._calls] += requests

    def _apply(self, request: Request, step: int) -> None:
        try:
            changes = validate(request, self._knobs.changeable())
            if isinstance(changes, Refused):
                self._refuse(changes, step)
                return
            before = self._knobs.apply(changes)
        except InputError as error:
            self._refuse(_refused(request, error), step)
        else:
            self._write(Event("treatment-applied", step, _applied(request, before, changes)))


def _name(call: int) -> str:
    return f"knobs/{call}"


def _refused(request: Request, error: InputError) -> Refused:
    return Refused("", printable(str(error), _LONGEST_REASON), request)


def _applied(
    request: Request, before: Mapping[str, Setting], after: Mapping[str, Setting]
) -> dict[str, object]:
    return {**request.body(), "before": dict(before), "after": dict(after)}
