"""The boundary between a training and the instruments in it.

Everything that a hook does inside a training runs through a `Guard`. An exception of an instrument
never reaches the training: it switches off that one part, with one warning line.
"""

from __future__ import annotations

import functools
import logging
import os
import threading
import time
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

from grpodoctor.errors import GrpodoctorError
from grpodoctor.support.safe_text import printable

P = ParamSpec("P")
T = TypeVar("T")

_LONGEST_REASON = 300
_log = logging.getLogger("grpodoctor")


class Guard:
    """Runs the parts of a hook. A part that fails once does not run again.

    Args:
        on_failure: called with the part and the reason when a part fails for the first time.
    """

    def __init__(self, on_failure: Callable[[str, str], None] | None = None) -> None:
        self.failed: dict[str, str] = {}
        """The reason by part, in the order of the failures."""
        self._on_failure = on_failure
        self._pid = os.getpid()
        self._thread = threading.get_ident()
        self._depth = 0
        self._seconds: float | None = None

    def is_on(self, part: str) -> bool:
        """Whether a part still runs; in a fork, such as a data loader's worker, nothing does."""
        return part not in self.failed and os.getpid() == self._pid

    def run(self, part: str, action: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T | None:
        """Call `action`; None if it fails, or if the part is off."""
        if not self.is_on(part):
            return None
        started = time.perf_counter()
        in_training = threading.get_ident() == self._thread
        self._depth += in_training
        try:
            return action(*args, **kwargs)
        except Exception as error:  # noqa: BLE001 - no error of an instrument reaches the training
            self.fail(part, reason_of(error))
            return None
        finally:
            self._depth -= in_training
            if in_training and not self._depth:  # a part inside another one is not counted twice
                self._seconds = (self._seconds or 0.0) + time.perf_counter() - started

    def take_seconds(self) -> float | None:
        """The time that all parts took from the training since the previous call.

        Only the thread that made the guard counts; None if nothing ran in it.
        """
        seconds, self._seconds = self._seconds, None
        return seconds

    def wrap(self, part: str) -> Callable[[Callable[P, T]], Callable[P, T | None]]:
        """Decorator: the function belongs to a part and returns None when it fails."""

        def decorate(function: Callable[P, T]) -> Callable[P, T | None]:
            @functools.wraps(function)
            def guarded(*args: P.args, **kwargs: P.kwargs) -> T | None:
                return self.run(part, function, *args, **kwargs)

            return guarded

        return decorate

    def after(
        self, original: Callable[..., T], part: str, observe: Callable[..., object]
    ) -> Callable[..., T]:
        """A function that calls `original` and then shows its result to `observe`.

        The training sees the result, or the exception, of `original` alone.

        Args:
            original: a function of the trainer.
            part: name of the part.
            observe: called with the result, followed by the arguments of the call.
        """

        @functools.wraps(original)
        def observed(*args: Any, **kwargs: Any) -> T:
            result = original(*args, **kwargs)
            self.run(part, observe, result, *args, **kwargs)
            return result

        return observed

    def fail(self, part: str, reason: str) -> None:
        """Switch a part off, and say so once."""
        if part in self.failed:
            return
        self.failed[part] = reason
        _log.warning("%s failed and is off from now on: %s; the training continues", part, reason)
        if self._on_failure is not None:
            try:
                self._on_failure(part, reason)
            except Exception as error:  # noqa: BLE001 - as above
                _log.warning("the failure could not be recorded: %s", reason_of(error))


def reason_of(error: Exception) -> str:
    """An exception as one printable line."""
    text = str(error) if isinstance(error, GrpodoctorError) else f"{type(error).__name__}: {error}"
    return printable(" ".join(text.split()), _LONGEST_REASON)
