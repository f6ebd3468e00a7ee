"""The process that compares mathematical answers.

Started as `python -m grpodoctor.trainer.rewards.math_worker FD`. A request is
`{"pairs": [(reference, answer, marked), ...], "seconds": 5.0}`. The reply is a list with true,
false, or null where a pair could not be compared within the limits.

Texts from models are hostile: `9**9**9` computes for hours inside one C function that no exception
interrupts, and deeply nested brackets can crash the interpreter. Pairs are therefore compared in
child processes that the kernel stops, by a timer of processor time whose signal is not caught and
by a memory limit. The children cannot write files. The limit is processor time, not clock time, so
that a result depends as little as possible on the load of the machine.
"""

from __future__ import annotations

import logging
import os
import resource
import select
import signal
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

from grpodoctor.support.worker_process import parent_connection, send_reply

Pair = tuple[str, str, bool]
"""The reference answer, the given answer, and whether the response marked it as its answer."""
Comparator = Callable[[str, str, bool], bool]

_MAX_MEMORY = 4 << 30
"""Bytes of address space per child."""
_CLOCK_SECONDS_PER_SECOND = 20
"""Clock time that a pair may take on a loaded machine, per second of processor time."""
_PAIRS_PER_CHILD = 16
"""Starting another child does not pay off for fewer pairs."""
_MAX_CHILDREN = 8
_EQUAL, _DIFFERENT = b"1", b"0"


class _Child(NamedTuple):
    pid: int
    pipe: int
    pairs: list[int]
    """Indices of its pairs; it compares them in order."""


def main() -> None:
    """Answer requests until the parent closes the connection."""
    connection = parent_connection()
    comparator = _math_verify()
    while True:
        try:
            job = connection.recv()
        except EOFError:
            return
        send_reply(connection, compare(job["pairs"], comparator, job["seconds"]))


def _math_verify() -> Comparator:
    from math_verify import parse, verify

    logging.disable(logging.CRITICAL)  # it warns that its own time limits are switched off

    def read(text: str) -> list[object]:
        parsed: list[object] = parse(text, parsing_timeout=None)
        return parsed

    def equal(reference: str, answer: str, marked: bool) -> bool:
        expected = read(f"\\boxed{{{reference}}}")
        forms = [f"\\boxed{{{answer}}}", answer] if marked else [answer]
        return any(verify(expected, read(form), timeout_seconds=None) for form in forms)

    return equal


def compare(pairs: Sequence[Pair], comparator: Comparator, seconds: float) -> list[bool | None]:
    """Compare all pairs in children, with at most `seconds` of processor time for each."""
    results: list[bool | None] = [None] * len(pairs)
    count = min(_MAX_CHILDREN, os.cpu_count() or 1, -(-len(pairs) // _PAIRS_PER_CHILD))
    shares = [list(range(first, len(pairs), count)) for first in range(count)]
    children = [_start(share, pairs, comparator, seconds) for share in shares]
    while children:
        child = children.pop(0)
        done = _collect(child, results, seconds * _CLOCK_SECONDS_PER_SECOND)
        remaining = child.pairs[done + 1 :]  # the pair at which the child died stays undecided
        if remaining:
            children.append(_start(remaining, pairs, comparator, seconds))
    return results


def _start(
    share: list[int], pairs: Sequence[Pair], comparator: Comparator, seconds: float
) -> _Child:
    read_end, write_end = os.pipe()
    pid = os.fork()
    if pid:
        os.close(write_end)
        return _Child(pid, read_end, share)
    try:
        os.close(read_end)
        _limit_resources()
        for index in share:
            signal.setitimer(signal.ITIMER_PROF, seconds)
            os.write(write_end, _EQUAL if comparator(*pairs[index]) else _DIFFERENT)
    finally:  # after any exception: the parent's buffers and files must not be flushed twice
        os._exit(0)


def _limit_resources() -> None:
    """Limit memory and files of this child, and let the timer's signal end it."""
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    for what, limit in (
        (resource.RLIMIT_AS, _MAX_MEMORY),
        (resource.RLIMIT_FSIZE, 0),
        (resource.RLIMIT_CORE, 0),
    ):
        _, hard = resource.getrlimit(what)
        most = limit if hard == resource.RLIM_INFINITY else min(limit, hard)
        resource.setrlimit(what, (most, hard))


def _collect(child: _Child, results: list[bool | None], seconds: float) -> int:
    """Read a child's results until it ends; returns how many there were."""
    done, deadline = 0, time.monotonic() + seconds
    while select.select([child.pipe], [], [], max(0.0, deadline - time.monotonic()))[0]:
        answered = os.read(child.pipe, 4096)
        if not answered:
            break
        for result in answered:
            results[child.pairs[done]] = result == _EQUAL[0]
            done += 1
        deadline = time.monotonic() + seconds
    os.close(child.pipe)
    os.kill(child.pid, signal.SIGKILL)  # dead or alive, it still has to be reaped
    os.waitpid(child.pid, 0)
    return done


if __name__ == "__main__":
    main()
