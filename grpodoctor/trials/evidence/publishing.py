"""Adding finished runs to the published ones.

    python -m grpodoctor.trials.evidence.publishing DIR [--replace]

adds the finished runs below DIR to `published_runs.parquet`, and writes what all of them show into
the table that the pages of rules and remedies read. A run is known by its trial, arm and seed: one
that is published already is replaced, and all others stay. If a trial receives runs, its published
runs must have the configuration of today, and those of the same seed the same kind of warm start:
arms are compared in pairs from the same weights. `--replace` removes those that differ.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from grpodoctor.errors import GrpodoctorError, RunError
from grpodoctor.trials.evidence.published_runs import (
    RUNS,
    experiments,
    published_evidence,
    read_runs,
    write_runs,
    write_table,
)
from grpodoctor.trials.results import RunResult, RunSpec


@dataclass(frozen=True, slots=True)
class Finished:
    """The finished runs below a directory."""

    runs: tuple[RunResult, ...]
    """One for each trial and arm to which a stored run belongs, examined by today's rules."""
    unused: tuple[RunSpec, ...]
    """Stored runs that belong to no trial as it is defined now."""


def finished_runs(root: Path) -> Finished:
    """Every stored run of every arm, in the order of trials, arms and seeds.

    Raises:
        RunError: if a stored result is damaged, or there is none.
        OSError: if one cannot be read.
    """
    from grpodoctor.trials.running import examined, stored_results

    stored = stored_results(root)
    if not stored:
        raise RunError(
            "no finished run of a trial",
            where=str(root),
            remedy="name the --dir of `grpodoctor trials`",
        )
    seeds = sorted({each.spec.seed for each in stored.values()})
    specs = [spec for spec in _all_specs(seeds) if spec.fingerprint in stored]
    found = {
        key: examined(stored[key], root / stored[key].spec.folder)
        for key in dict.fromkeys(each.fingerprint for each in specs)
    }
    runs = tuple(replace(found[spec.fingerprint], spec=spec) for spec in specs)
    return Finished(runs, tuple(each.spec for key, each in stored.items() if key not in found))


def _all_specs(seeds: Iterable[int]) -> Iterator[RunSpec]:
    from grpodoctor.trials.running import spec_of

    chosen = list(seeds)
    for experiment in experiments():
        for arm in experiment.arms:
            for seed in chosen:
                yield spec_of(experiment, arm, seed)


def merged(
    published: Sequence[RunResult], new: Sequence[RunResult], *, replaces: bool = False
) -> list[RunResult]:
    """The published runs and new ones, in the order of trials, arms and seeds.

    Args:
        published: runs of trials whose definition is still the same.
        new: runs with today's configuration.
        replaces: remove published runs that differ instead of refusing them.

    Raises:
        RunError: if published runs have another configuration than the new runs of their trial, or
            another warm start than those of the same seed: their outcomes cannot be compared.
    """
    trials = {each.spec.trial for each in new}
    ours = {_key(each): each for each in new}
    others = [each for each in published if _key(each) not in ours]
    changed = [each for each in others if each.spec.trial in trials and _differs(each)]
    starts = _warm_starts(new)
    apart = [each for each in others if starts.get(_pair(each), each.warm_start) != each.warm_start]
    if not replaces:
        _refuse(changed, "configuration than the new runs of the same trial")
        _refuse(apart, "warm start than the new runs of the same seed")
    lost = [*changed, *apart]
    kept = [each for each in others if each not in lost]
    arms = [(each.name, arm) for each in experiments() for arm in each.arms]
    place = {name: number for number, name in enumerate(arms)}
    return sorted([*kept, *new], key=lambda each: (place[_key(each)[:2]], each.spec.seed))


def _warm_starts(results: Iterable[RunResult]) -> dict[tuple[str, int], str]:
    """The kind of warm start of each trial and seed.

    Raises:
        RunError: if arms of a seed have different ones.
    """
    kinds: dict[tuple[str, int], str] = {}
    for each in results:
        if kinds.setdefault(_pair(each), each.warm_start) != each.warm_start:
            raise RunError(
                "arms of one seed have different warm starts: the trainer changed between them",
                where=each.spec.title,
                remedy="run the trial again in the same directory; it trains the older runs again",
            )
    return kinds


def _refuse(differing: Sequence[RunResult], other_than: str) -> None:
    if differing:
        raise RunError(
            f"{_runs(len(differing), 'published ')} of another {other_than}: the trainer has "
            "changed since",
            where=differing[0].spec.title,
            remedy="train these seeds again, or remove the published runs with --replace",
        )


def _pair(result: RunResult) -> tuple[str, int]:
    return result.spec.trial, result.spec.seed


def _key(result: RunResult) -> tuple[str, str, int]:
    return result.spec.trial, result.spec.arm, result.spec.seed


def _differs(result: RunResult) -> bool:
    """Whether the trial would train this run with another configuration today."""
    from grpodoctor.trials.registry import experiment_of
    from grpodoctor.trials.running import spec_of

    experiment = experiment_of(result.spec.trial)
    today = spec_of(experiment, result.spec.arm, result.spec.seed)
    return today.fingerprint != result.spec.fingerprint


def publish(root: Path, path: Path = RUNS, *, replaces: bool = False) -> Iterator[str]:
    """Add the finished runs below a directory to the published ones; yield what was done.

    Raises:
        RunError: as `finished_runs` and `merged`.
        OSError: if a file cannot be read or written.
    """
    finished = finished_runs(root)
    before = read_runs(path) if path.exists() else []
    new = [*finished.runs, *_shared(before, finished.runs)]
    runs = merged(before, new, replaces=replaces)
    write_runs(runs, path)
    again = len({_key(each) for each in before} & {_key(each) for each in new})
    kept = len(runs) - len(new)
    yield (
        f"published: {_runs(len(runs))} ({len(new) - again} new, {again} "
        f"repeated, {kept} as before); {len(before) - again - kept} removed"
    )
    if finished.unused:
        first = finished.unused[0]
        yield (
            f"not published: {_runs(len(finished.unused))} with settings of no current trial "
            f"(first: {first.title}, {first.steps} steps)"
        )


def _shared(published: Sequence[RunResult], new: Sequence[RunResult]) -> Iterator[RunResult]:
    """Published runs that are also an arm of a trial with new runs, for the seeds of these.

    A control that several trials share is trained once. One with another warm start is not shared.
    """
    from grpodoctor.trials.registry import experiment_of
    from grpodoctor.trials.running import spec_of

    known = {_key(each) for each in (*published, *new)}
    by_settings = {(each.spec.fingerprint, each.warm_start): each for each in published}
    starts = _warm_starts(new)
    for (trial, seed), kind in starts.items():
        experiment = experiment_of(trial)
        for spec in (spec_of(experiment, arm, seed) for arm in experiment.arms):
            shared = by_settings.get((spec.fingerprint, kind))
            if shared is not None and (trial, spec.arm, seed) not in known:
                yield replace(shared, spec=spec)


def _runs(count: int, kind: str = "") -> str:
    return f"1 {kind}run" if count == 1 else f"{count} {kind}runs"


def main(arguments: Sequence[str]) -> None:
    """Publish the finished runs below a directory."""
    flags = [each for each in arguments if each.startswith("-")]
    names = [each for each in arguments if not each.startswith("-")]
    if len(names) != 1 or set(flags) - {"--replace"}:
        sys.exit("usage: python -m grpodoctor.trials.evidence.publishing DIR [--replace]")
    try:
        for line in publish(Path(names[0]), replaces=bool(flags)):
            print(line)
        write_table(published_evidence())
    except (GrpodoctorError, OSError) as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    main(sys.argv[1:])
