"""The program that compares mathematical answers.

Started as `python -m grpodoctor.trainer.rewards.math_worker`.

A line of JSON comes in, `{"pairs": [[gold, answer, marked], ...], "seconds": 5.0}`, and a line goes
out, a list with true, false, or null where a pair could not be judged within the bounds.

What models write is hostile: `9**9**9` computes for ages inside one C function, where no exception
reaches it, and some nests of brackets end the interpreter. So pairs are compared in children of
this process, which the kernel ends: by a timer of processor time, whose signal nobody catches, and
by a bound on memory. They may write no file. Processor time rather than time on the clock, so that
a verdict depends as little as can be on what else the machine is doing.
"""

from __future__ import annotations

import json
import logging
import os
import resource
import select
import signal
import sys
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

Pair = tuple[str, str, bool]
"""The right answer, the answer given, and whether the response marked it as its answer."""
RuleResult = bool | None
Judge = Callable[[str, str, bool], bool]

_MEMORY = 4 << 30
"""Bytes of address space per child."""
_PATIENCE = 20
"""Times the allowed processor time that a pair may take on the clock of a crowded machine."""
_PAIRS_PER_CHILD = 16
"""Fewer are not worth a child more."""
_MOST_CHILDREN = 8
_RIGHT, _WRONG = b"1", b"0"


class _Child(NamedTuple):
    pid: int
    pipe: int
    pairs: list[int]
    """Those it was given; it answers them in order."""


def main() -> None:
    """Answer lines until there are no more."""
    answers = os.fdopen(os.dup(1), "w", encoding="ascii")
    os.dup2(2, 1)  # what a library prints must not stand among the answers
    judge = _math_verify()
    for line in sys.stdin.buffer:
        job = json.loads(line)
        answers.write(json.dumps(compare(job["pairs"], judge, job["seconds"])) + "\n")
        answers.flush()


def _math_verify() -> Judge:
    from math_verify import parse, verify

    logging.disable(logging.CRITICAL)  # it warns of time-outs that are switched off: ours hold

    def read(text: str) -> list[object]:
        found: list[object] = parse(text, parsing_timeout=None)
        return found

    def judge(gold: str, answer: str, marked: bool) -> bool:
        right = read(f"\\boxed{{{gold}}}")
        forms = [f"\\boxed{{{answer}}}", answer] if marked else [answer]
        return any(verify(right, read(form), timeout_seconds=None) for form in forms)

    return judge


def compare(pairs: Sequence[Pair], judge: Judge, seconds: float) -> list[RuleResult]:
    """Judge all pairs in children, at most `seconds` of processor time for each."""
    verdicts: list[RuleResult] = [None] * len(pairs)
    wanted = min(_MOST_CHILDREN, os.cpu_count() or 1, -(-len(pairs) // _PAIRS_PER_CHILD))
    shares = [list(range(first, len(pairs), wanted)) for first in range(wanted)]
    children = [_start(share, pairs, judge, seconds) for share in shares]
    while children:
        child = children.pop(0)
        done = _follow(child, verdicts, seconds * _PATIENCE)
        left = child.pairs[done + 1 :]  # the one that it died of stays undecided
        if left:
            children.append(_start(left, pairs, judge, seconds))
    return verdicts


def _start(share: list[int], pairs: Sequence[Pair], judge: Judge, seconds: float) -> _Child:
    ours, theirs = os.pipe()
    pid = os.fork()
    if pid:
        os.close(theirs)
        return _Child(pid, ours, share)
    try:
        os.close(ours)
        _bind()
        for index in share:
            signal.setitimer(signal.ITIMER_PROF, seconds)
            os.write(theirs, _RIGHT if judge(*pairs[index]) else _WRONG)
    finally:  # whatever was raised: nothing of the parent's is flushed or closed a second time
        os._exit(0)


def _bind() -> None:
    """Keep this child to itself; the default answer to the timer's signal is death."""
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    for what, limit in (
        (resource.RLIMIT_AS, _MEMORY),
        (resource.RLIMIT_FSIZE, 0),
        (resource.RLIMIT_CORE, 0),
    ):
        _, hard = resource.getrlimit(what)
        most = limit if hard == resource.RLIM_INFINITY else min(limit, hard)
        resource.setrlimit(what, (most, hard))


def _follow(child: _Child, verdicts: list[RuleResult], patience: float) -> int:
    """Take a child's verdicts until it ends; returns how many it gave."""
    done, deadline = 0, time.monotonic() + patience
    while select.select([child.pipe], [], [], max(0.0, deadline - time.monotonic()))[0]:
        answered = os.read(child.pipe, 4096)
        if not answered:
            break
        for verdict in answered:
            verdicts[child.pairs[done]] = verdict == _RIGHT[0]
            done += 1
        deadline = time.monotonic() + patience
    os.close(child.pipe)
    os.kill(child.pid, signal.SIGKILL)  # ended or not, it is still ours to reap
    os.waitpid(child.pid, 0)
    return done


if __name__ == "__main__":
    main()
