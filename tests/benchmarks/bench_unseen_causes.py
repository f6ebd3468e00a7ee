"""Planted and named causes on families that attribution was not built with.

`python tests/benchmarks/bench_unseen_causes.py [WORD …]` runs the plants whose names or groups
contain a word, all by default; `make bench-causes` runs all. `--sample SHARE` runs that share of
each group; `--seed N` runs them in random order. `-o FILE` writes one JSON line per plant and
resumes an earlier run. `--cpu-limit SECONDS` runs each pair in a process of its own, and stops it
after so much computing time. `--random-doubles N --seed S` runs N doubles that the seed draws from
the known single faults. Tiny random checkpoints, transformers on both sides, in one process.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")

from grpodoctor.errors import GrpodoctorError  # noqa: E402  # after the path to it
from grpodoctor.probe.attribution.case import Attribution, Case  # noqa: E402
from grpodoctor.probe.attribution.explanation import DEFECT  # noqa: E402
from grpodoctor.probe.attribution.investigate import investigate  # noqa: E402
from grpodoctor.probe.contract import Processing, Sampling  # noqa: E402
from grpodoctor.probe.inputs.engine_spec import EngineSpec  # noqa: E402
from grpodoctor.probe.results.results import Cell  # noqa: E402
from grpodoctor.probe.severity import severity_of  # noqa: E402
from tests.probe.attribution.cases import measured, plain  # noqa: E402
from tests.probe.attribution.in_process import InProcess  # noqa: E402
from tests.probe.plants.catalogue import MOE, Plant, plants, unseen  # noqa: E402
from tests.probe.plants.families import adapter, checkpoint, prompts  # noqa: E402
from tests.probe.plants.random_doubles import GROUP, random_double, random_doubles  # noqa: E402

PROMPTS, SAMPLES, TOKENS = 24, 3, 40
ENGINE = ROOT / "tests" / "probe" / "plants" / "planted_engine.py"

_ORIGINS = {"attention": "attention-kernel", "dtype": "precision"}
"""The cause that two healthy engines with different values of an option really have."""


@dataclass(frozen=True)
class Outcome:
    """What attribution said about a plant."""

    plant: Plant
    causes: tuple[tuple[str, str], ...]
    """Ids and confidences, largest share first."""
    verdict: str
    severity: str
    seconds: float
    gap: float
    summaries: tuple[str, ...] = ()
    explained: tuple[float | None, ...] = ()
    """Share of the gap that each cause explains."""
    error: str = ""
    scorings: int = 0
    """Times that an engine scored responses."""

    @property
    def named(self) -> bool:
        """Whether every fault is named among the first causes; nothing at all if healthy."""
        if self.error:
            return any(word in self.error for words in self.plant.causes for word in words)
        count = len(self.plant.causes)
        first = [name for name, _ in self.causes[: max(count, 1)]]
        if not count:
            return all(name in self._true_origins for name, _ in self.causes)
        if self.plant.causes == (frozenset({"unknown"}),):
            return not any(sure == "proven" for _, sure in self.causes) and self.severity != "none"
        return all(any(name in accepted for name in first) for accepted in self.plant.causes)

    @property
    def wrongly_proven(self) -> bool:
        """Whether a cause that was not planted is called proven."""
        accepted = frozenset().union(*self.plant.causes, self._true_origins)
        return any(sure == "proven" and name not in accepted for name, sure in self.causes)

    @property
    def _true_origins(self) -> frozenset[str]:
        """What a report may rightly name as the origin of a healthy pair's rounding.

        Only if it says that the engines agree, and calls it no fault.
        """
        agrees = "agree" in self.verdict.split(".")[0] and self.severity in ("none", "info")
        if self.plant.causes or not agrees:
            return frozenset()
        one, other = self.plant.options, self.plant.others
        differing = (cause for key, cause in _ORIGINS.items() if one.get(key) != other.get(key))
        return frozenset(differing)

    @property
    def missed_silently(self) -> bool:
        """Whether a fault ends in "agree" or exit 0."""
        if self.error:
            return False
        silent = "agree" in self.verdict.split(".")[0] or self.severity in ("none", "info")
        return bool(self.plant.causes) and silent

    def as_json(self) -> dict[str, Any]:
        """For `-o`."""
        return {
            "plant": self.plant.name, "group": self.plant.group, "family": self.plant.family,
            "named": self.named, "wrongly_proven": self.wrongly_proven,
            "silent": self.missed_silently, "causes": self.causes, "verdict": self.verdict,
            "severity": self.severity, "gap": self.gap, "seconds": round(self.seconds, 2),
            "summaries": self.summaries, "explained": self.explained, "error": self.error,
            "scorings": self.scorings,
        }  # fmt: skip

    @classmethod
    def from_json(cls, plant: Plant, line: dict[str, Any]) -> Outcome:
        """An outcome that an earlier run wrote."""
        return cls(
            plant, tuple((name, sure) for name, sure in line["causes"]), line["verdict"],
            line["severity"], line["seconds"], line["gap"], tuple(line["summaries"]),
            tuple(line["explained"]), line["error"], line.get("scorings", 0),
        )  # fmt: skip

    def stated(self, least: float) -> set[str]:
        """The first causes, one per fault, that explain at least a share of the gap."""
        count = max(len(self.plant.causes), 1)
        first = list(zip(self.causes, self.explained, strict=True))[:count]
        return {
            name
            for (name, _), share in first
            if name != "unknown" and (share is None or share >= least)
        }

    def score(self, least: float) -> tuple[int, int]:
        """Whether all faults are named, and whether a wrong cause is, from a share on."""
        stated = self.stated(least)
        accepted = frozenset().union(*self.plant.causes, self._true_origins)
        wrong = bool(stated - accepted)
        if not self.plant.causes or self.error or "unknown" in accepted:
            return int(self.named and not wrong), int(wrong)
        return int(all(stated & each for each in self.plant.causes)), int(wrong)


def outcome(plant: Plant, root: Path) -> Outcome:
    """Measure a plant's pair and ask why it differs."""
    began, before = time.monotonic(), _scorings(root)
    try:
        case, found = _investigated(plant, root)
    except GrpodoctorError as error:
        seconds = time.monotonic() - began
        return Outcome(plant, (), "", "none", seconds, 0.0, error=str(error))
    cell = Cell(
        sampler="s", learner="l", max_tokens=TOKENS, status="done", comparison=case.comparison,
        causes=found.causes, verdict=found.verdict, gap=found.gap, noise=found.noise,
        noise_is_usual=found.noise_is_usual,
    )  # fmt: skip
    return Outcome(
        plant,
        tuple((each.cause, each.confidence) for each in found.causes),
        found.verdict,
        severity_of(cell),
        time.monotonic() - began,
        found.gap,
        tuple(each.summary for each in found.causes),
        tuple(each.explained for each in found.causes),
        error=next((note for note in found.notes if note.startswith(DEFECT)), ""),
        scorings=_scorings(root) - before,
    )


def limited_outcome(plant: Plant, seconds: int) -> Outcome:
    """The same in a process that is stopped after some seconds of computing time."""

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 5))

    began = time.monotonic()
    with tempfile.TemporaryDirectory() as scratch:
        written = Path(scratch) / "outcome.jsonl"
        command = [sys.executable, __file__, "--key", plant.key, "-o", str(written)]
        ended = subprocess.run(command, stdout=subprocess.DEVNULL, preexec_fn=limit, check=False)
        lines = written.read_text("utf-8").splitlines() if written.exists() else []
    if lines:
        return Outcome.from_json(plant, json.loads(lines[-1]))
    is_limit = ended.returncode in (-signal.SIGXCPU, -signal.SIGKILL)
    error = f"stopped after {seconds} s of computing time" if is_limit else "ended by a defect"
    return Outcome(plant, (), "", "none", time.monotonic() - began, 0.0, error=error)


def _scorings(root: Path) -> int:
    return sum(1 for _ in root.glob("runner/scored/*/done.json"))


def _investigated(plant: Plant, root: Path) -> tuple[Case, Attribution]:
    with _measured(plant, root) as (runner, case):
        return case, investigate(runner, case)


@contextmanager
def _measured(plant: Plant, root: Path) -> Iterator[tuple[InProcess, Case]]:
    """A plant's pair, measured."""
    model = checkpoint(root / plant.family, plant.family)
    stale = checkpoint(root / f"{plant.family}-stale", plant.family, changed=0.15)
    paths = {"STALE": stale, "ADAPTER": root / "adapter", "LOUD_ADAPTER": root / "loud"}
    folders = {word: str(path) for word, path in paths.items()}
    if "adapter" in plant.options:
        adapter(root / "adapter", model, alpha=4)
        adapter(root / "loud", model, alpha=16)
    options = {key: folders.get(value, value) for key, value in plant.options.items()}
    others = {key: folders.get(value, value) for key, value in plant.others.items()}
    faults = plant.faults.replace("STALE", str(stale)).replace("ADAPTER", str(root / "adapter"))
    broken = EngineSpec.of(
        "program", str(ENGINE), {"model": str(model), "faults": faults, "threads": 1, **options}
    )
    healthy = plain(model, **others)
    pair = (broken, healthy) if plant.side == "sampler" else (healthy, broken)
    sampling = Sampling(**{"samples": SAMPLES, "max_tokens": TOKENS} | plant.sampling)
    with InProcess(root / "runner", prompts(PROMPTS)) as runner:
        older = stale if plant.stale else None
        case = measured(
            runner, *pair, sampling, stale=older, experts=plant.family in MOE,
            processing=Processing.of(sampling) if plant.shared else None,
        )  # fmt: skip
        yield runner, case


SMALLEST = 0.01
"""Mean |Δp| that each fault of a random double exceeds alone."""


def _drawn_doubles(seed: int, count: int, root: Path) -> list[Plant]:
    """The first doubles of a seed whose faults matter alone, each measured without attribution."""
    known: dict[str, bool] = {}

    def matters(plant: Plant) -> bool:
        if plant.key not in known:
            known[plant.key] = probability_gap(plant, root) > SMALLEST
        return known[plant.key]

    return list(islice(random_doubles(seed, matters), count))


def probability_gap(plant: Plant, root: Path) -> float:
    """The mean |Δp| of a pair, without attribution; 0 if the family cannot have the fault."""
    try:
        with _measured(plant, root) as (_, case):
            return case.comparison.value("mismatch/prob_diff_mean")
    except GrpodoctorError:
        return 0.0


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the chosen plants and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("words", nargs="*")
    parser.add_argument("-o", dest="output", type=Path)
    parser.add_argument("--sample", type=float, default=1.0)
    parser.add_argument("--seed", type=int)
    parser.add_argument("--cpu-limit", type=int, metavar="SECONDS")
    parser.add_argument("--key", help="of one plant, as -o writes it")
    parser.add_argument("--random-doubles", type=int, metavar="N")
    options = parser.parse_args(arguments)
    if options.random_doubles and options.seed is None:
        parser.error("--random-doubles needs --seed")
    if options.random_doubles:
        with tempfile.TemporaryDirectory() as scratch:
            chosen = _drawn_doubles(options.seed, options.random_doubles, Path(scratch))
    elif options.key and options.key.startswith(GROUP):
        chosen = [random_double(options.key)]
    else:
        wanted = [each for each in (*plants(), *unseen()) if _is_wanted(each, options)]
        if not wanted:
            parser.error(f"no plant has {' or '.join(options.words)} in its name or as its group")
        chosen = sampled(wanted, options.sample, options.seed)
    known = _earlier(options.output)
    outcomes = []
    with tempfile.TemporaryDirectory() as scratch:
        for number, plant in enumerate(chosen):
            if plant.key in known:
                outcomes.append(Outcome.from_json(plant, known[plant.key]))
                continue
            limited = options.cpu_limit is not None
            outcomes.append(
                limited_outcome(plant, options.cpu_limit)
                if limited
                else outcome(plant, Path(scratch))
            )
            _note(outcomes[-1], number, len(chosen))
            if options.output:
                with options.output.open("a", encoding="utf-8") as lines:
                    print(json.dumps(outcomes[-1].as_json() | {"key": plant.key}), file=lines)
    print_tables(outcomes)
    print_leave_one_out(outcomes)
    return 0


def _is_wanted(plant: Plant, options: argparse.Namespace) -> bool:
    if options.key not in (None, plant.key):
        return False
    words = options.words
    return not words or any(word in plant.name or word == plant.group for word in words)


def sampled(wanted: Sequence[Plant], share: float, seed: int | None) -> list[Plant]:
    """A share of each group's plants, at least one; in random order with a seed."""
    groups: dict[str, list[Plant]] = defaultdict(list)
    for plant in wanted:
        groups[plant.group].append(plant)
    generator = random.Random(seed or 0)
    kept = [
        plant.key
        for group in groups.values()
        for plant in generator.sample(group, max(1, math.ceil(share * len(group))))
    ]
    chosen = [plant for plant in wanted if plant.key in kept]
    if seed is not None:  # what an interrupted run has done is a sample, too
        generator.shuffle(chosen)
    return chosen


def _earlier(output: Path | None) -> dict[str, dict[str, Any]]:
    if output is None or not output.exists():
        return {}
    lines = (json.loads(line) for line in output.read_text("utf-8").splitlines())
    return {line["key"]: line for line in lines if "key" in line}


def _note(one: Outcome, number: int, count: int) -> None:
    mark = "named" if one.named else "MISSED"
    causes = ", ".join(f"{name} ({sure})" for name, sure in one.causes) or one.error or "none"
    print(
        f"{number + 1}/{count} {one.seconds:.1f} s, {one.scorings} scorings, "
        f"{one.plant.name}: {causes} {mark}"
        + (" WRONGLY PROVEN" if one.wrongly_proven else "")
        + (" SILENT" if one.missed_silently else ""),
        file=sys.stderr,
        flush=True,
    )


def print_tables(outcomes: list[Outcome]) -> None:
    """Planted and named by group and by family."""
    for title, key in (("group", "group"), ("family", "family")):
        total: Counter[str] = Counter()
        hits: Counter[str] = Counter()
        for one in outcomes:
            total[getattr(one.plant, key)] += 1
            hits[getattr(one.plant, key)] += one.named
        print(f"\n| {title} | planted | named |\n|---|---|---|")
        for name, count in total.items():
            print(f"| {name} | {count} | {hits[name]} |")
    faulty = [one for one in outcomes if one.plant.causes]
    single = [one for one in faulty if len(one.plant.causes) == 1]
    double = [one for one in faulty if len(one.plant.causes) > 1]
    print(
        f"\n{sum(one.named for one in single)} of {len(single)} single causes and "
        f"{sum(one.named for one in double)} of {len(double)} doubles named; "
        f"{sum(one.wrongly_proven for one in outcomes)} wrongly proven, "
        f"{sum(one.missed_silently for one in faulty)} faults end in agreement or exit 0; "
        f"median {sorted(one.seconds for one in outcomes)[len(outcomes) // 2]:.1f} s a pair."
    )


SHARES = (0.0, 0.1, 0.2, 0.3, 0.5, 0.7, 0.9, 0.99)


def print_leave_one_out(outcomes: Sequence[Outcome]) -> None:
    """By family: what is named from the least share on that serves the other families best.

    A larger share hides wrong causes and right ones. It serves a set of pairs best if named minus
    wrong is largest there; of equal shares the smallest counts.
    """
    families = list(dict.fromkeys(one.plant.family for one in outcomes))
    print("\n| family left out | least share, from the others | pairs | named | wrong |")
    print("|---|---|---|---|---|")
    totals = [0, 0]
    for family in families:
        others = [one for one in outcomes if one.plant.family != family]
        own = [one for one in outcomes if one.plant.family == family]
        least = best_share(others)
        named, wrong = _scores(own, least)
        totals = [totals[0] + named, totals[1] + wrong]
        print(f"| {family} | {least:g} | {len(own)} | {named} | {wrong} |")
    print(
        f"\nWith each family left out: {totals[0]} of {len(outcomes)} named, {totals[1]} with a "
        "wrong cause."
    )


def best_share(outcomes: Sequence[Outcome]) -> float:
    """The least share with the most named minus wrong causes; the smallest of equal ones."""

    def merit(least: float) -> tuple[int, float]:
        named, wrong = _scores(outcomes, least)
        return named - wrong, -least

    return max(SHARES, key=merit)


def _scores(outcomes: Sequence[Outcome], least: float) -> tuple[int, int]:
    scores = [one.score(least) for one in outcomes]
    return sum(named for named, _ in scores), sum(wrong for _, wrong in scores)


if __name__ == "__main__":
    raise SystemExit(main())
