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
from grpodoctor.treatment.requests import Refused, Request, shortened, validate
from grpodoctor.vocabulary.knobs import Setting

_DELAY = 2
"""Steps from reading a request to its change, with several ranks. A rank at its next step may not
see the request yet. One step later all ranks have exchanged gradients since, so all of them see it
and change at the same step."""

_LONGEST_REASON = 300


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
        self._calls = 0
        self._refused: list[Refused] = []
        """The requests refused at this step."""
        self._due: defaultdict[int, list[Request]] = defaultdict(list)

    def begin_step(self, step: int) -> None:
        """Apply what is due at this step; every rank calls it equally often."""
        self._calls += 1
        # What is due at a later step is passed on in time for all ranks.
        ahead = 0 if self._exchange is None else _DELAY
        for request in self._inbox.take(step, ahead) if self._inbox else ():
            self._take(request)
        if self._exchange is not None:
            self._pass_on(self._exchange)
        for request in self._due.pop(self._calls, ()):
            self._apply(request, step)
        for refused in shortened(self._refused):
            self._write(Event("treatment-refused", step, refused.body()))
        self._refused.clear()

    def _take(self, request: Request | Refused) -> None:
        if isinstance(request, Request) and request.kind == "note":
            self._write(request.as_event())
            return
        checked = request if isinstance(request, Refused) else self._checked(request)
        if isinstance(checked, Refused):
            self._refused.append(checked)
        else:
            delay = 0 if self._exchange is None else _DELAY
            self._due[self._calls + delay].append(checked)

    def _checked(self, request: Request) -> Request | Refused:
        try:
            self._knobs.check(request.changes)  # first, because it knows what to do instead
        except InputError as error:
            return _refused(request, error)
        changes = validate(request, self._knobs.changeable(), is_final=False)
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
                self._refused.append(changes)
                return
            before = self._knobs.apply(changes)
        except InputError as error:
            self._refused.append(_refused(request, error))
        else:
            self._write(Event(request.applied_kind, step, _applied(request, before, changes)))


def _name(call: int) -> str:
    return f"knobs/{call}"


def _refused(request: Request, error: InputError) -> Refused:
    return Refused("", printable(str(error), _LONGEST_REASON), request)


def _applied(
    request: Request, before: Mapping[str, Setting], after: Mapping[str, Setting]
) -> dict[str, object]:
    return {**request.body(), "before": dict(before), "after": dict(after)}
