"""Summarizing shards in this process, in a process pool or on a Ray cluster.

All runners return the results in shard order, so the result does not depend on the runner. A shard
that fails is tried once more, file by file. What fails again is named and left out.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import grpodoctor.frameworks.rollout_formats as rollout_formats
from grpodoctor.errors import GrpodoctorError
from grpodoctor.runs.rollout_dumps.shards import Shard
from grpodoctor.runs.rollout_dumps.summarize import ShardSummary, summarize_shard
from grpodoctor.support.discovery import module_paths
from grpodoctor.support.ray_cluster import connected

if TYPE_CHECKING:
    from concurrent.futures import Future, ProcessPoolExecutor

_FOLDER = Path(__file__).parent
POOL_FROM = 64 * 1024 * 1024
"""Bytes of dumps from which a process pool is worth its start."""
_AHEAD = 3
"""Shards in progress per worker; bounded, since results wait in memory for their turn."""
_MAX_WORKERS = 16
_PRELOADED = [
    *module_paths("grpodoctor.runs.rollout_dumps", _FOLDER).values(),
    *module_paths(
        "grpodoctor.frameworks.rollout_formats", Path(rollout_formats.__path__[0])
    ).values(),
]
"""Modules that are loaded once, before the pool's server forks its workers."""
_EXPECTED_ERRORS = (
    GrpodoctorError,
    OSError,
    ValueError,
    ArithmeticError,
    LookupError,
    MemoryError,
)


class ShardResult(NamedTuple):
    """The summary of a shard, or the reason why there is none."""

    shard: Shard
    summary: ShardSummary | None
    why: str = ""


Runner = Callable[[Sequence[Shard]], Iterator[list[ShardResult]]]
"""Yields for each shard, in order, one result, or one per file if the shard failed as a whole."""


def try_shard(shard: Shard, *, ahead: bool = False) -> ShardResult:
    """Summarize a shard; errors that a file can cause become the result's reason."""
    try:
        return ShardResult(shard, summarize_shard(shard, ahead=ahead))
    except _EXPECTED_ERRORS as error:
        return ShardResult(shard, None, f"{type(error).__name__}: {error}"[:300])


def one_per_file(shard: Shard) -> list[Shard]:
    """Split a shard into one for each of its files."""
    return [shard._replace(pieces=(piece,)) for piece in shard.pieces]


def in_process(shards: Sequence[Shard]) -> Iterator[list[ShardResult]]:
    """Summarize shards in this process, one after another."""
    for shard in shards:
        result = try_shard(shard, ahead=True)
        if result.summary is not None:
            yield [result]
        else:
            yield [try_shard(part) for part in one_per_file(shard)]


def in_process_pool(workers: int | None = None) -> Runner:
    """Summarize shards in a process pool, by default with one worker per processor."""
    count = max(1, min(workers or len(os.sched_getaffinity(0)), _MAX_WORKERS))

    def run(shards: Sequence[Shard]) -> Iterator[list[ShardResult]]:
        pool = _Pool(count)
        try:
            yield from _in_order(shards, count * _AHEAD, pool.submit, pool.result)
        finally:
            pool.close()

    return run


def _in_order(
    shards: Sequence[Shard],
    ahead: int,
    submit: Callable[[Shard], Any],
    result: Callable[[Any, Shard], ShardResult],
) -> Iterator[list[ShardResult]]:
    """Keep up to `ahead` shards in progress; yield their results in order."""
    submitted: deque[tuple[Shard, Any]] = deque()
    queue = iter(shards)
    while True:
        while len(submitted) < ahead and (shard := next(queue, None)) is not None:
            submitted.append((shard, submit(shard)))
        if not submitted:
            return
        shard, ticket = submitted.popleft()
        shard_result = result(ticket, shard)
        if shard_result.summary is not None:
            yield [shard_result]
        else:
            yield [result(submit(part), part) for part in one_per_file(shard)]


def _set_environment(environment: Mapping[str, str]) -> None:
    os.environ.update(environment)


class _Pool:
    """A process pool that is replaced when a worker dies.

    The death of a worker fails all shards in progress. They are tried alone at their turn, so that
    only the shard that kills its worker is reported.
    """

    def __init__(self, workers: int) -> None:
        self._workers = workers
        self._pool = self._make(workers)

    @staticmethod
    def _make(workers: int) -> ProcessPoolExecutor:
        # Imported here: most logs have no dumps, and need no pool.
        import multiprocessing
        from concurrent.futures import ProcessPoolExecutor

        method = "forkserver" if "forkserver" in multiprocessing.get_all_start_methods() else None
        context = multiprocessing.get_context(method)
        if method is not None:
            context.set_forkserver_preload([*_PRELOADED, "pyarrow.parquet", "pyarrow.compute"])
        # The fork server keeps the environment of its start; credentials of a store may be newer.
        return ProcessPoolExecutor(
            workers, context, initializer=_set_environment, initargs=(dict(os.environ),)
        )

    def submit(self, shard: Shard) -> Future[ShardResult] | None:
        """Submit a shard; None if the pool has just died, in which case `result` tries it alone."""
        from concurrent.futures.process import BrokenProcessPool

        try:
            return self._pool.submit(try_shard, shard)
        except BrokenProcessPool:
            return None

    def result(self, ticket: Future[ShardResult] | None, shard: Shard) -> ShardResult:
        """Return the result of a shard; try it in a pool of one if its pool died."""
        from concurrent.futures import CancelledError
        from concurrent.futures.process import BrokenProcessPool

        if ticket is not None:
            try:
                return ticket.result()
            except (BrokenProcessPool, CancelledError):
                pass  # this shard's worker died, or another one's
        self._pool.shutdown(wait=False, cancel_futures=True)
        single = self._make(1)
        try:
            return single.submit(try_shard, shard).result()
        except BrokenProcessPool:
            reason = "the process that read it died: out of memory, or a broken file"
            return ShardResult(shard, None, reason)
        finally:
            single.shutdown()
            self._pool = self._make(self._workers)

    def close(self) -> None:
        """Stop the workers."""
        self._pool.shutdown(cancel_futures=True)


def on_ray(address: str) -> Runner:
    """Summarize shards on a Ray cluster: `local` starts one, `auto` or an address joins one.

    Every node must have the dumps at the same path.
    """

    def run(shards: Sequence[Shard]) -> Iterator[list[ShardResult]]:
        with connected(address, "reading dumps on a Ray cluster") as ray:
            cpus = int(ray.cluster_resources().get("CPU", 1))
            # Ray retries when a machine disappears; shards that fail are retried here.
            remote = ray.remote(max_retries=1)(try_shard)
            yield from _in_order(
                shards,
                max(1, cpus) * _AHEAD,
                remote.remote,
                lambda ticket, shard: _ray_result(ray, ticket, shard),
            )

    return run


def _ray_result(ray: Any, ticket: Any, shard: Shard) -> ShardResult:
    try:
        result: ShardResult = ray.get(ticket)
    except ray.exceptions.RayError as error:
        return ShardResult(shard, None, f"on the cluster: {str(error).splitlines()[-1][:200]}")
    return result


def runner_for(size: int, ray: str | None = None, workers: int | None = None) -> Runner:
    """Choose the runner for dumps of `size` bytes; `ray` overrides the choice."""
    if ray is not None:
        return on_ray(ray)
    return in_process_pool(workers) if size >= POOL_FROM and workers != 1 else in_process
