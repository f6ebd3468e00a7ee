"""What treatments do to healthy runs of the bundled trainer: false keeps, and the outcome.

    python tests/benchmarks/bench_treatment_runs.py [--runs 30] [--steps 64] [--jobs 2] [--dir DIR]

With --dir, finished runs are kept there, and an interrupted series continues where it was.

Three arms from the same seeds, each a real training with a real mailbox:

- null: a finding is raised where the reward is at its lowest for ten steps, and the treatment sets
  a knob that nothing reads. It changes no number of the run, so this is the untreated run, too.
- findings: the doctor applies remedies, unsafe ones included, to what the rules find.
- forced: the finding of the null arm calls for real remedies, which a healthy run does not need.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import statistics
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

from scipy.stats import t as student

from grpodoctor.remedies.base import Criterion, Remedy
from grpodoctor.remedies.catalogue import remedy_of
from grpodoctor.rules.base import Evidence, Finding
from grpodoctor.runs.chart import Chart
from grpodoctor.runs.reading.native_run import read_run
from grpodoctor.trainer.config.train_config import load_config
from grpodoctor.trainer.loop import StepReport, Trainer
from grpodoctor.treatment.doctor import Doctor
from grpodoctor.treatment.doctor_settings import DoctorSettings
from grpodoctor.trials.process_pool import Died, in_processes
from grpodoctor.trials.trial import BASE_SETTINGS
from grpodoctor.trials.twins import result_of
from grpodoctor.vocabulary.knobs import Setting

ARMS = ("null", "findings", "forced")
FORCED = ("clip-higher", "token-level-loss", "entropy-bonus", "lower-learning-rate")
SETTINGS = ("rollout.prompts_per_batch=4", "evaluation.every=16", "evaluation.prompts=64")
OUTCOME = "outcome.json"
LOWEST_OF = 10
"""A finding is raised at the lowest reward of this many steps."""


class NullRemedy(Remedy):
    """A change of a knob that nothing reads."""

    id = "null"
    title = "Null"
    applicability = "safe"
    in_flight = True
    slots = ("engine-correction",)
    target = Criterion("reward/mean", "up")
    more_targets = (Criterion("entropy/mean", "up"),)
    guards = (Criterion("length/truncated_rate", "up", 0.5, slack=0.05),)
    paper = ""

    def change(self, knobs: Mapping[str, Setting]) -> dict[str, Setting]:
        return {"correction_cap": float(knobs["correction_cap"]) + 1.0}


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a run."""

    accuracy: float
    """Held-out accuracy, pooled over the last three evaluations."""
    states: tuple[str, ...]
    """The final state of each treatment."""


class ForcedDoctor:
    """Raises a finding at each local low of the reward, and lets a doctor treat it."""

    def __init__(self, remedies: Sequence[Remedy], seed: int) -> None:
        settings = DoctorSettings(cool_down_steps=2)
        self.doctor = Doctor(remedies, "unsafe", settings, random.Random(seed))
        self.remedies = tuple(remedy.id for remedy in remedies)

    def findings(self, chart: Chart) -> list[Finding]:
        """A finding at a low of the reward."""
        rewards = chart.series("reward/mean").tail(LOWEST_OF)
        is_low = len(rewards) == LOWEST_OF and rewards[-1] == min(rewards)
        if not is_low:
            return []
        evidence = (Evidence("reward/mean", chart.step, rewards[-1], None),)
        return [
            Finding("BEN001", "bench", "warning", chart.step, chart.step, True, "", evidence,
                    self.remedies, ())
        ]  # fmt: skip


def train(job: tuple[int, str], root: Path, steps: int) -> Outcome:
    """Train a run of an arm."""
    from grpodoctor.monitor.session import Session
    from grpodoctor.treatment.mailbox import Mailbox

    seed, arm = job
    run_dir = root / f"{arm}-{seed}"
    fixed = [f"seed={seed}", f"steps={steps}", *SETTINGS]
    trainer = Trainer(load_config(assignments=[*BASE_SETTINGS, *fixed]), run_dir)
    session = Session(run_dir, apply="unsafe" if arm == "findings" else "none")
    remedies = [NullRemedy()] if arm == "null" else [remedy_of(name) for name in FORCED]
    forced, mailbox = ForcedDoctor(remedies, seed), Mailbox(run_dir)

    def treat(_: StepReport) -> None:
        tick = session.tick()
        if arm == "findings" or not tick.steps:
            forced.doctor.read_events(tick.events)
            return
        chart = session.examination.engine.chart
        for request in forced.doctor.observe(chart, forced.findings(chart), tick.events):
            mailbox.send(request)

    trainer.run(treat)
    outcome = Outcome(result_of(run_dir).accuracy.value, _states(run_dir))
    (run_dir / OUTCOME).write_text(json.dumps(asdict(outcome)))
    return outcome


def kept_outcomes(root: Path, jobs: Sequence[tuple[int, str]]) -> dict[tuple[int, str], Outcome]:
    """The outcomes of runs that ended in a former series; others are removed."""
    outcomes = {}
    for seed, arm in jobs:
        run_dir = root / f"{arm}-{seed}"
        if (run_dir / OUTCOME).exists():
            row = json.loads((run_dir / OUTCOME).read_text())
            outcomes[seed, arm] = Outcome(row["accuracy"], tuple(row["states"]))
        else:
            shutil.rmtree(run_dir, ignore_errors=True)
    return outcomes


def _states(run_dir: Path) -> tuple[str, ...]:
    """The end of each treatment that was assessed."""
    kinds = [event.kind.removeprefix("treatment-") for event in read_run(run_dir).events]
    return tuple(kind for kind in kinds if kind in ("kept", "undone"))


def interval(differences: Sequence[float]) -> str:
    """The mean of paired differences with a 95 % t interval."""
    mean, count = statistics.mean(differences), len(differences)
    error = statistics.stdev(differences) / count**0.5
    half = float(student.ppf(0.975, count - 1)) * error
    return f"{mean:+.4f} (95 %: {mean - half:+.4f} to {mean + half:+.4f})"


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=30)
    parser.add_argument("--steps", type=int, default=64)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--dir", type=Path)
    options = parser.parse_args()
    jobs = [(seed, arm) for seed in range(options.runs) for arm in ARMS]
    with tempfile.TemporaryDirectory() as folder:
        root = options.dir or Path(folder)
        task = partial(train, root=root, steps=options.steps)
        results = kept_outcomes(root, jobs)
        missing = [job for job in jobs if job not in results]
        with closing(in_processes(task, missing, options.jobs)) as outcomes:
            for job, outcome in outcomes:
                if isinstance(outcome, Died):
                    print(f"run {job} is missing: {outcome.reason}", flush=True)
                else:
                    results[job] = outcome
                    print(*job, f"{outcome.accuracy:.3f}", *outcome.states, flush=True)
    for arm in ARMS:
        _print_arm(arm, results, options.runs)


def _print_arm(arm: str, results: dict[tuple[int, str], Outcome], runs: int) -> None:
    seeds = [seed for seed in range(runs) if {(seed, arm), (seed, "null")} <= results.keys()]
    states = [state for seed in seeds for state in results[seed, arm].states]
    treated = sum(bool(results[seed, arm].states) for seed in seeds)
    print(
        f"{arm:9} {len(seeds)} runs, {treated} treated, {len(states)} treatments: "
        f"{states.count('kept')} kept, {states.count('undone')} undone"
    )
    if arm != "null":
        gains = [results[seed, arm].accuracy - results[seed, "null"].accuracy for seed in seeds]
        same = sum(gain == 0 for gain in gains)
        print(f"{'':9} outcome minus untreated: {interval(gains)}; {same} runs equal")


if __name__ == "__main__":
    main()
