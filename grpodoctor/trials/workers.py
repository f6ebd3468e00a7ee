"""Training many runs of trials: one process for each run, or tasks on a Ray cluster.

A run that ended is kept, so an interrupted series continues where it was. A process that dies costs
its own run only, and the run is reported by name.
"""

from __future__ import annotations

import multiprocessing
import multiprocessing.connection
import os
import signal
from collections.abc import Generator, Iterable, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerContext
from multiprocessing.process import BaseProcess
from pathlib import Path

from grpodoctor.support.progress import Progress
from grpodoctor.support.ray_cluster import connected
from grpodoctor.trials.results import RunResult, RunSpec, failed
from grpodoctor.trials.running import stored_results, train

_PRELOADED = ["grpodoctor.trials.running", "grpodoctor.trainer.loop"]
"""Modules that the fork server loads once; torch takes longer to load than a short run."""
_EXIT_SECONDS = 5.0


def run_all(
    specs: Sequence[RunSpec],
    root: Path,
    progress: Progress,
    *,
    jobs: int | None = None,
    ray: str | None = None,
) -> list[RunResult]:
    """Train the runs that have no stored result; runs with the same settings are trained once.

    Args:
        specs: the runs.
        root: directory of all trials.
        progress: receives the number of finished runs.
        jobs: processes at a time; by default one for each processor.
        ray: train on this Ray cluster instead; every node must have `root` at the same path.

    Returns:
        One result for each run, in the order of `specs`.

    Raises:
        ConfigError: if there is no Ray cluster at the address.
        MissingExtraError: if Ray is not installed.
        RunError: if a stored result is damaged.
        OSError: if a directory cannot be read or written.
    """
    root.mkdir(parents=True, exist_ok=True)
    distinct = {spec.fingerprint: spec for spec in reversed(specs)}
    results = {key: found for key, found in stored_results(root).items() if key in distinct}
    missing = [spec for key, spec in reversed(distinct.items()) if key not in results]
    progress.update(len(results), total=len(distinct))
    trained = _on_ray(missing, root, ray) if ray else _in_processes(missing, root, jobs or _cpus())
    with closing(trained):
        for result in trained:
            results[result.spec.fingerprint] = result
            progress.update(len(results), detail=result.spec.title)
    return [replace(results[spec.fingerprint], spec=spec) for spec in specs]


def _cpus() -> int:
    return len(os.sched_getaffinity(0))


def _on_ray(specs: Sequence[RunSpec], root: Path, address: str) -> Generator[RunResult]:
    with connected(address, "training trials on a Ray cluster") as ray:
        remote = ray.remote(num_cpus=1, max_retries=1)(train)
        waiting = {remote.remote(spec, root.absolute()): spec for spec in specs}
        while waiting:
            (ticket,), _ = ray.wait(list(waiting), num_returns=1)
            spec = waiting.pop(ticket)
            try:
                result = ray.get(ticket)
            except ray.exceptions.RayError as error:
                lines = str(error).splitlines() or [type(error).__name__]
                result = failed(spec, f"on the cluster: {lines[-1][:200]}")
            yield result


def _in_processes(specs: Iterable[RunSpec], root: Path, jobs: int) -> Generator[RunResult]:
    """Train runs, up to `jobs` at a time; yield each when it has ended."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(_PRELOADED)
    queue, running = iter(specs), list[_Running]()
    try:
        while True:
            while len(running) < jobs and (spec := next(queue, None)) is not None:
                running.append(_start(context, spec, root))
            if not running:
                return
            ended = multiprocessing.connection.wait([each.process.sentinel for each in running])
            for each in [each for each in running if each.process.sentinel in ended]:
                running.remove(each)
                each.process.join()
                yield each.result()
    finally:
        for each in running:
            each.process.terminate()
        for each in running:
            each.process.join(_EXIT_SECONDS)


@dataclass(frozen=True, slots=True, eq=False)
class _Running:
    """A run in its process."""

    spec: RunSpec
    process: BaseProcess
    pipe: Connection

    def result(self) -> RunResult:
        """The result of the ended process."""
        with closing(self.pipe), suppress(EOFError):
            if self.pipe.poll():
                result: RunResult = self.pipe.recv()
                return result
        code = self.process.exitcode or 0
        how = f"ended by {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
        return failed(self.spec, f"its process died ({how})")


def _start(context: ForkServerContext, spec: RunSpec, root: Path) -> _Running:
    ours, theirs = context.Pipe(duplex=False)
    with closing(theirs):
        process = context.Process(target=_train_into, args=(spec, root, theirs))
        process.start()
    return _Running(spec, process, ours)


def _train_into(spec: RunSpec, root: Path, pipe: Connection) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent ends its processes itself
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    pipe.send(train(spec, root))
