"""Where shards are summarised: in this process, in a pool of them, or on a Ray cluster.

All three give the summaries in the order of the plan, so that what is made of them is the same. A
shard that fails is tried once more, its files apart; what fails again is named and left out.
"""

from __future__ import annotations

import multiprocessing
import os
import socket
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError, Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Any, NamedTuple

import grpodoctor.frameworks.rollout_formats as rollout_formats
from grpodoctor.errors import ConfigError, GrpodoctorError, MissingExtraError
from grpodoctor.runs.rollout_dumps.shards import Shard
from grpodoctor.runs.rollout_dumps.summarize import Summary, summarize_shard
from grpodoctor.support.discovery import module_paths

_FOLDER = Path(__file__).parent
POOL_FROM = 64 * 1024 * 1024
"""Bytes of a dump from which on a pool of processes is worth its start."""
_AHEAD = 3
"""Shards per worker that are under way before their turn: bounded, since results wait in memory."""
_MOST_WORKERS = 16
_KNOCK_SECONDS = 5.0
_OF_READERS = [
    *module_paths("grpodoctor.runs.rollout_dumps", _FOLDER).values(),
    *module_paths(
        "grpodoctor.frameworks.rollout_formats", Path(rollout_formats.__path__[0])
    ).values(),
]
"""What a process needs to read any format: loaded once, before it divides."""
_EXPECTED = (GrpodoctorError, OSError, ValueError, ArithmeticError, LookupError, MemoryError)


class ShardResult(NamedTuple):
    """What became of a shard."""

    shard: Shard
    summary: Summary | None
    why: str = ""
    """Why there is no summary."""


Runner = Callable[[Sequence[Shard]], Iterator[list[ShardResult]]]
"""For each shard in order: one outcome, or one for each of its files where they were tried apart.
"""


def attempt(shard: Shard, *, ahead: bool = False) -> ShardResult:
    """Summarise a shard; what a file may do to its reader becomes words."""
    try:
        return ShardResult(shard, summarize_shard(shard, ahead=ahead))
    except _EXPECTED as error:
        return ShardResult(shard, None, f"{type(error).__name__}: {error}"[:300])


def apart(shard: Shard) -> list[Shard]:
    """A shard for each of its files."""
    return [shard._replace(pieces=(piece,)) for piece in shard.pieces]


def here(shards: Sequence[Shard]) -> Iterator[list[ShardResult]]:
    """In this process, one after another."""
    for shard in shards:
        outcome = attempt(shard, ahead=True)
        yield [outcome] if outcome.summary is not None else [attempt(each) for each in apart(shard)]


def pooled(workers: int | None = None) -> Runner:
    """In as many processes as there are processors, or as many as given."""
    count = max(1, min(workers or len(os.sched_getaffinity(0)), _MOST_WORKERS))

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
    """Keep some shards under way; their outcomes in order, second tries at their turn."""
    waiting: deque[tuple[Shard, Any]] = deque()
    queue = iter(shards)
    while True:
        while len(waiting) < ahead and (shard := next(queue, None)) is not None:
            waiting.append((shard, submit(shard)))
        if not waiting:
            return
        shard, ticket = waiting.popleft()
        outcome = result(ticket, shard)
        if outcome.summary is not None:
            yield [outcome]
        else:
            yield [result(submit(each), each) for each in apart(shard)]


def _take_environment(environment: Mapping[str, str]) -> None:
    os.environ.update(environment)


class _Pool:
    """A pool of processes that is made anew when one of them dies.

    A death takes all that was under way with it. Those shards are tried alone at their turn, so
    that only the one that kills its process is blamed.
    """

    def __init__(self, workers: int) -> None:
        self._workers = workers
        self._pool = self._make(workers)

    @staticmethod
    def _make(workers: int) -> ProcessPoolExecutor:
        method = "forkserver" if "forkserver" in multiprocessing.get_all_start_methods() else None
        context = multiprocessing.get_context(method)
        if method is not None:
            context.set_forkserver_preload([*_OF_READERS, "pyarrow.parquet", "pyarrow.compute"])
        # The server that forks them began with the environment of its day: credentials of a store
        # may have been set since.
        return ProcessPoolExecutor(
            workers, context, initializer=_take_environment, initargs=(dict(os.environ),)
        )

    def submit(self, shard: Shard) -> Future[ShardResult] | None:
        """Put a shard under way; None if the pool has just died, which its turn will show."""
        try:
            return self._pool.submit(attempt, shard)
        except BrokenProcessPool:
            return None

    def result(self, ticket: Future[ShardResult] | None, shard: Shard) -> ShardResult:
        """The outcome of a shard, alone in a pool of one if the pool died under it."""
        if ticket is not None:
            try:
                return ticket.result()
            except (BrokenProcessPool, CancelledError):
                pass  # this shard's process died, or another one's and the pool was given up
        self._pool.shutdown(wait=False, cancel_futures=True)
        alone = self._make(1)
        try:
            return alone.submit(attempt, shard).result()
        except BrokenProcessPool:
            return ShardResult(
                shard, None, "the process that read it died: memory, or a broken file"
            )
        finally:
            alone.shutdown()
            self._pool = self._make(self._workers)

    def close(self) -> None:
        """End the processes."""
        self._pool.shutdown(cancel_futures=True)


def on_ray(address: str) -> Runner:
    """On a Ray cluster: `local` starts one here, `auto` or an address joins one.

    Every node must see the dump under the same path.
    """

    def run(shards: Sequence[Shard]) -> Iterator[list[ShardResult]]:
        ray = _ray()
        started = _join_cluster(ray, address)
        try:
            cpus = int(ray.cluster_resources().get("CPU", 1))
            # Ray's own retries are for machines that vanish; a shard that fails is ours to retry.
            remote = ray.remote(max_retries=1)(attempt)
            yield from _in_order(
                shards,
                max(1, cpus) * _AHEAD,
                remote.remote,
                lambda ticket, shard: _ray_outcome(ray, ticket, shard),
            )
        finally:
            if started:
                ray.shutdown()

    return run


def _ray() -> Any:
    try:
        import ray
    except ImportError:
        raise MissingExtraError("reading dumps on a Ray cluster", "ray") from None
    return ray


def _join_cluster(ray: Any, address: str) -> bool:
    """Connect if this process is not yet; whether it was us."""
    if ray.is_initialized():
        return False
    _knock(address)
    package = Path(__file__).parents[3]
    quiet: dict[str, Any] = {"include_dashboard": False} if address == "local" else {}
    try:
        ray.init(
            address=address,
            log_to_driver=False,
            logging_level="ERROR",
            configure_logging=False,
            # The nodes may have another version of us, or none.
            runtime_env={"py_modules": [str(package)]},
            **quiet,
        )
    except (ConnectionError, ValueError, RuntimeError, OSError) as error:
        raise _no_cluster(address, str(error)) from error
    return True


def _knock(address: str) -> None:
    """Whether anybody is there at all: Ray itself waits for minutes.

    Raises:
        ConfigError: if nobody answers at that host and port.
    """
    host, colon, port = address.removeprefix("ray://").rpartition(":")
    if not colon:
        return
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=_KNOCK_SECONDS).close()
    except (OSError, ValueError, OverflowError) as error:
        raise _no_cluster(address, str(error)) from error


def _no_cluster(address: str, why: str) -> ConfigError:
    return ConfigError(
        f"no Ray cluster: {(why.splitlines() or [''])[0][:120]}",
        where=f"--ray {address[:80]}",
        remedy="give local, auto or the address of a running cluster",
    )


def _ray_outcome(ray: Any, ticket: Any, shard: Shard) -> ShardResult:
    try:
        outcome: ShardResult = ray.get(ticket)
    except ray.exceptions.RayError as error:
        return ShardResult(shard, None, f"on the cluster: {str(error).splitlines()[-1][:200]}")
    return outcome


def runner_for(size: int, ray: str | None = None, workers: int | None = None) -> Runner:
    """The runner that suits a dump of `size` bytes, or that the user wants."""
    if ray is not None:
        return on_ray(ray)
    return pooled(workers) if size >= POOL_FROM and workers != 1 else here
