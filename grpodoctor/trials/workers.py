"""Training many runs of trials: one process for each run, or tasks on a Ray cluster.

A run that ended is kept, so an interrupted series continues where it was. A process that dies costs
its own run only, and the run is reported by name.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path

from grpodoctor.support.progress import Progress
from grpodoctor.support.ray_cluster import connected
from grpodoctor.trials.process_pool import Died, in_processes, processors
from grpodoctor.trials.results import RunResult, RunSpec, failed
from grpodoctor.trials.running import examined, stored_results, train


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
    from grpodoctor.trainer.model.warm_start import warm_start_kind

    root.mkdir(parents=True, exist_ok=True)
    # In the order of `specs`, so that an interrupted series holds whole trials.
    distinct: dict[str, RunSpec] = {}
    for spec in specs:
        distinct.setdefault(spec.fingerprint, spec)
    # Arms are compared in pairs, so runs from an earlier kind of warm start are trained again.
    kind = warm_start_kind()
    stored = {
        key: found
        for key, found in stored_results(root).items()
        if key in distinct and found.warm_start == kind
    }
    missing = [spec for key, spec in distinct.items() if key not in stored]
    results: dict[str, RunResult] = {}
    progress.update(0, total=len(distinct))
    for key, result in stored.items():
        # The rules may have changed since the run was trained.
        results[key] = examined(result, root / result.spec.folder)
        progress.update(len(results), detail=result.spec.title)
    trained = (
        _on_ray(missing, root, ray) if ray else _in_processes(missing, root, jobs or processors())
    )
    with closing(trained):
        for result in trained:
            results[result.spec.fingerprint] = result
            progress.update(len(results), detail=result.spec.title)
    return [replace(results[spec.fingerprint], spec=spec) for spec in specs]


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
    with closing(in_processes(partial(train, root=root), specs, jobs)) as ended:
        for spec, outcome in ended:
            yield failed(spec, outcome.reason) if isinstance(outcome, Died) else outcome
