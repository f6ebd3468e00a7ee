"""Whether a response's final answer is mathematically the right one: the trainer's side.

math-verify compares; it does so in a program of its own (`math_worker`), where a hostile text ends
a process that nobody misses.
"""

from __future__ import annotations

import json
import logging
import os
import select
import subprocess
import sys
import weakref
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

import grpodoctor
from grpodoctor.errors import DataError, MissingExtraError
from grpodoctor.trainer.rewards.final_answer import agree, find_final

_LONGEST = 2000
"""Characters of an answer that are looked at, counted from its end."""
_LEAVING_PATIENCE = 5.0
_ATTEMPTS = 2
_CLOCK_SECONDS_PER_SECOND = 40
"""Longest wait for the worker, per second of processor time that its pairs may take."""

_log = logging.getLogger("grpodoctor")


class MathJudge:
    """Judges answers by math-verify; the worker starts with the first answer that needs it.

    Args:
        seconds: of processor time for one answer; one that takes longer counts as wrong.

    Raises:
        MissingExtraError: if math-verify is not installed.
    """

    def __init__(self, seconds: float = 5.0) -> None:
        if find_spec("math_verify") is None:
            raise MissingExtraError("checking mathematical answers", "train")
        self._seconds = seconds
        self._worker: subprocess.Popen[bytes] | None = None
        self._told = False

    def judge(self, golds: Sequence[str], texts: Sequence[str]) -> list[bool]:
        """Whether each text's final answer equals its gold answer.

        Raises:
            DataError: if the worker cannot be kept alive.
        """
        right = [find_final(gold).text for gold in golds]
        given = [find_final(text) for text in texts]
        verdicts: list[bool | None] = [
            agree(gold, final.text) for gold, final in zip(right, given, strict=True)
        ]
        unclear = [
            index
            for index, final in enumerate(given)
            if not verdicts[index] and final.text and right[index]
        ]
        pairs = [(right[i], given[i].text[-_LONGEST:], given[i].marked) for i in unclear]
        for index, verdict in zip(unclear, self._compare(pairs), strict=True):
            verdicts[index] = verdict
        self._tell(verdicts.count(None))
        return [bool(verdict) for verdict in verdicts]

    def _compare(self, pairs: list[tuple[str, str, bool]]) -> list[bool | None]:
        if not pairs:
            return []
        job = json.dumps({"pairs": pairs, "seconds": self._seconds}).encode() + b"\n"
        patience = 60 + len(pairs) * self._seconds * _CLOCK_SECONDS_PER_SECOND
        for _ in range(_ATTEMPTS):
            line = _exchange(self._running(), job, patience)
            if line.endswith(b"\n"):
                verdicts: list[bool | None] = json.loads(line)
                return verdicts
            self.close()
        raise DataError(
            "the process that checks mathematical answers ends whenever it is started",
            where="task.verifier",
            remedy="see whether python -c 'import math_verify' works, and whether memory is left",
        )

    def _running(self) -> subprocess.Popen[bytes]:
        if self._worker is None:
            self._worker = subprocess.Popen(
                [sys.executable, "-P", "-m", "grpodoctor.trainer.rewards.math_worker"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                process_group=0,  # a terminal's Ctrl-C is for the trainer alone
                env={**os.environ, "PYTHONPATH": _import_path()},
            )
            self._leave = weakref.finalize(self, _end, self._worker)
        return self._worker

    def _tell(self, undecided: int) -> None:
        if undecided and not self._told:
            self._told = True
            _log.warning(
                "%d answers could not be compared within %g s of processor time (or ended the "
                "process that tried) and count as wrong; so will others",
                *(undecided, self._seconds),
            )

    def close(self) -> None:
        """End the worker; the next answer starts another."""
        if self._worker is not None:
            self._leave()
            self._worker = None


def _exchange(worker: subprocess.Popen[bytes], job: bytes, patience: float) -> bytes:
    """Send a line and read one; what came of it, if the worker ended or took too long."""
    if worker.stdin is None or worker.stdout is None:
        return b""
    try:
        worker.stdin.write(job)
        worker.stdin.flush()
    except OSError:
        return b""
    pipe = worker.stdout
    ready = select.select([pipe], [], [], patience)[0]
    return pipe.readline() if ready else b""


def _end(worker: subprocess.Popen[bytes]) -> None:
    for pipe in (worker.stdin, worker.stdout):
        if pipe is not None:
            try:
                pipe.close()
            except OSError:  # what it never read
                continue
    try:
        worker.wait(_LEAVING_PATIENCE)
    except subprocess.TimeoutExpired:
        worker.kill()
        worker.wait()


def _import_path() -> str:
    """Where this process finds its packages, and so where the worker does."""
    package = str(Path(grpodoctor.__file__).parent.parent)
    return os.pathsep.join([*(path for path in sys.path if path), package])
