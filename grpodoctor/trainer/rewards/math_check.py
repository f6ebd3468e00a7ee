"""Mathematical comparison of final answers, on the trainer's side.

math-verify compares in a separate process (`math_worker`), because a hostile text can crash it.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from importlib.util import find_spec

from grpodoctor.errors import DataError, MissingExtraError
from grpodoctor.measure.final_answer import find_final, same_answer
from grpodoctor.support.worker_process import WorkerProcess

_MAX_CHARACTERS = 2000
"""Characters of an answer that are compared, counted from its end."""
_ATTEMPTS = 2
_STARTUP_SECONDS = 60.0
_CLOCK_SECONDS_PER_SECOND = 40
"""Longest wait for the worker, per second of processor time that its pairs may take."""

_log = logging.getLogger("grpodoctor")


class MathVerifier:
    """Compares answers with math-verify; the worker starts when the first answer needs it.

    Args:
        seconds: processor time for one answer; an answer that takes longer counts as wrong.

    Raises:
        MissingExtraError: if math-verify is not installed.
    """

    def __init__(self, seconds: float = 5.0) -> None:
        if find_spec("math_verify") is None:
            raise MissingExtraError("checking mathematical answers", "train")
        self._seconds = seconds
        self._worker = WorkerProcess("grpodoctor.trainer.rewards.math_worker")
        self._has_warned = False

    def verify(self, references: Sequence[str], texts: Sequence[str]) -> list[bool]:
        """Whether the final answer of each text equals its reference answer.

        Raises:
            DataError: if the worker exits at every start.
        """
        expected = [find_final(reference).text for reference in references]
        finals = [find_final(text) for text in texts]
        correct: list[bool | None] = [
            same_answer(reference, final.text)
            for reference, final in zip(expected, finals, strict=True)
        ]
        unclear = [
            index
            for index, final in enumerate(finals)
            if not correct[index] and final.text and expected[index]
        ]
        pairs = [
            (expected[index], finals[index].text[-_MAX_CHARACTERS:], finals[index].marked)
            for index in unclear
        ]
        for index, equal in zip(unclear, self._compare(pairs), strict=True):
            correct[index] = equal
        self._warn(correct.count(None))
        return [bool(equal) for equal in correct]

    def _compare(self, pairs: list[tuple[str, str, bool]]) -> list[bool | None]:
        if not pairs:
            return []
        job = {"pairs": pairs, "seconds": self._seconds}
        limit = _STARTUP_SECONDS + len(pairs) * self._seconds * _CLOCK_SECONDS_PER_SECOND
        for _ in range(_ATTEMPTS):
            try:
                equal: list[bool | None] = self._worker.request(job, limit)
            except (TimeoutError, EOFError):
                continue
            return equal
        raise DataError(
            "the process that checks mathematical answers exits at every start",
            where="task.verifier",
            remedy="check that python -c 'import math_verify' works and that memory is free",
        )

    def _warn(self, undecided: int) -> None:
        if undecided and not self._has_warned:
            self._has_warned = True
            _log.warning(
                "%d answers count as wrong because their comparison took more than %g s of "
                "processor time or crashed; this is reported once",
                undecided,
                self._seconds,
            )

    def close(self) -> None:
        """End the worker; the next answer starts another."""
        self._worker.close()
