"""One process for each item of work, some at a time; one that dies costs its own item only.

The processes end with the one that started them, even if that is killed.
"""

from __future__ import annotations

import multiprocessing
import multiprocessing.connection
import os
import signal
import threading
from collections.abc import Callable, Generator, Iterable
from contextlib import closing, suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerContext
from multiprocessing.process import BaseProcess
from typing import Generic, TypeVar, cast

_PRELOADED = [
    "grpodoctor.trials.running",
    "grpodoctor.trainer.loop",
    "transformers.models.qwen2.modeling_qwen2",
    "transformers.models.qwen3_moe.modeling_qwen3_moe",
]
"""Modules that the fork server loads once, the built-in models' included: torch and transformers
take longer to load than a short run."""
_EXIT_SECONDS = 5.0


T = TypeVar("T")
R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Died:
    """The end of a process that returned nothing."""

    reason: str


def processors() -> int:
    """The processors that this process may use."""
    return len(os.sched_getaffinity(0))


def in_processes(
    task: Callable[[T], R], items: Iterable[T], jobs: int
) -> Generator[tuple[T, R | Died]]:
    """Call `task` for each item in a separate process; yield each result when it has ended.

    Args:
        task: a picklable function.
        items: its arguments.
        jobs: processes at a time. Closing the generator ends the running ones.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(_PRELOADED)
    queue, running = iter(items), list[_Running[T]]()
    try:
        while True:
            while len(running) < jobs and (item := next(queue, None)) is not None:
                running.append(_start(context, task, item))
            if not running:
                return
            ended = multiprocessing.connection.wait([each.process.sentinel for each in running])
            for each in [each for each in running if each.process.sentinel in ended]:
                running.remove(each)
                each.process.join()
                yield each.item, cast("R | Died", each.result())
    finally:
        for each in running:
            each.process.terminate()
        for each in running:
            each.process.join(_EXIT_SECONDS)


@dataclass(frozen=True, slots=True, eq=False)
class _Running(Generic[T]):
    """An item in its process."""

    item: T
    process: BaseProcess
    pipe: Connection

    def result(self) -> object:
        """What the ended process returned, or how it died."""
        with closing(self.pipe), suppress(EOFError):
            if self.pipe.poll():
                return self.pipe.recv()
        code = self.process.exitcode or 0
        how = f"ended by {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
        return Died(f"its process died ({how})")


def _start(context: ForkServerContext, task: Callable[[T], object], item: T) -> _Running[T]:
    ours, theirs = context.Pipe(duplex=False)
    with closing(theirs):
        process = context.Process(target=_send_result, args=(task, item, theirs))
        process.start()
    return _Running(item, process, ours)


def _send_result(task: Callable[[T], object], item: T, pipe: Connection) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent ends its processes itself
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    with suppress(BrokenPipeError):  # the parent was killed: the stored result remains
        pipe.send(task(item))


def _end_with_parent() -> None:
    """End this process once the one that started it has ended.

    A killed parent cannot end its children. Its end closes a pipe, and this waits for that.
    """
    if (parent := multiprocessing.parent_process()) is not None:
        parent.join()
        os._exit(1)
