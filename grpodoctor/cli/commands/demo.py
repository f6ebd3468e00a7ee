"""`grpodoctor demo`."""

from __future__ import annotations

import shutil
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from grpodoctor.errors import MissingExtraError, RunError

if TYPE_CHECKING:
    from rich.console import Console

    from grpodoctor.trials.twins import Arm, Verdict

DISEASE = (
    "engine.precision=int4",
    "engine.old_logprobs=sampler",
    "threads=1",
    "evaluation.every=5",
    "evaluation.prompts=128",
)
"""A sampler quantised to four bits whose log-probabilities stand for the old policy: what a
production stack does when it trusts its inference engine. No number is injected anywhere."""


def demo(
    directory: Annotated[
        Path, typer.Option("--dir", help="Where the two runs and the report go.")
    ] = Path("demo"),
    steps: Annotated[int, typer.Option("--steps", min=20, help="Training steps.")] = 120,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Seed of both runs.")] = 0,
    again: Annotated[
        bool, typer.Option("--again", help="Replace the runs of an earlier demo in --dir.")
    ] = False,
) -> None:
    """Train a model with a planted fault, treat it live, and write a report.

    Two runs start from the same seed and the same sick configuration. One is watched and treated,
    the other is left alone; the report shows both in one picture.
    """
    for package in ("torch", "transformers"):
        if find_spec(package) is None:
            raise MissingExtraError("the demo", "torch")
    from rich.console import Console

    console = Console(highlight=False, soft_wrap=True)
    treated, untreated = directory / "treated", directory / "untreated"
    for run_dir in (treated, untreated):
        _make_room(run_dir, again=again)
    _introduce(console, seed)
    arms = _launch((treated, untreated), steps=steps, seed=seed)
    try:
        _follow(arms)
        for arm in arms:
            _await(arm)
    finally:
        for arm in arms:
            arm.end()
    _conclude(console, directory, treated, untreated)


def _make_room(run_dir: Path, *, again: bool) -> None:
    if not run_dir.exists():
        return
    if not (again and (run_dir / "run.json").is_file()):
        raise RunError(
            "the directory is taken",
            where=str(run_dir),
            remedy="choose another --dir, or replace an earlier demo with --again",
        )
    shutil.rmtree(run_dir)


def _introduce(console: Console, seed: int) -> None:
    """Warm the model up where the viewer sees it; both runs then find it in the cache."""
    from grpodoctor.trainer.config.train_config import load_config
    from grpodoctor.trainer.data.loading import build_task
    from grpodoctor.trainer.model.policy import load_policy

    console.print("The model: the built-in one, warm-started by supervised training (cached).")
    config = load_config(assignments=[*DISEASE, f"seed={seed}"])
    load_policy(config, build_task(config.task))
    console.print(
        "The disease: the engine that samples is quantised to int4, and the learner takes the\n"
        "engine's log-probabilities for its own old policy. Two runs start from the same seed;\n"
        "one is watched and treated, its twin is left alone.\n"
    )


def _launch(run_dirs: tuple[Path, Path], *, steps: int, seed: int) -> list[Arm]:
    from grpodoctor.trials.twins import launch

    return [launch(each, steps=steps, seed=seed, assignments=DISEASE) for each in run_dirs]


def _follow(arms: list[Arm]) -> None:
    from grpodoctor.cli.commands.watch import LiveView, follow
    from grpodoctor.monitor.session import Session

    def over() -> bool:
        for arm in arms:
            arm.check()
        return session.examination.finished or arms[0].process.poll() is not None

    session = Session(arms[0].run_dir, apply="safe")
    follow(session, LiveView.for_terminal(), ended=over)


def _await(arm: Arm) -> None:
    """Wait for a twin that takes longer than the one on screen."""
    arm.process.wait(timeout=600)
    arm.check()


def _conclude(console: Console, directory: Path, treated: Path, untreated: Path) -> None:
    from grpodoctor.monitor.replay import replay
    from grpodoctor.monitor.report_data import ComparisonRun
    from grpodoctor.report import html
    from grpodoctor.report.run.phrases import summary_lines
    from grpodoctor.report.run.view import view_of
    from grpodoctor.trials.twins import Verdict, outcome_of

    verdict = Verdict(outcome_of(treated), outcome_of(untreated))
    twin = replay(untreated)
    data = replay(treated)
    comparison = ComparisonRun("untreated twin", twin.series, verdict.sentence())
    page = directory / "report.html"
    page.write_text(html.render(view_of(data.with_comparison(comparison))), encoding="utf-8")
    for line in summary_lines(data.report):
        console.print(line, markup=False)
    _print_verdict(console, verdict)
    console.print(f"\nThe report with pictures of both runs: {page}", markup=False)


def _print_verdict(console: Console, verdict: Verdict) -> None:
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for heading in ("", "held-out accuracy", "entropy"):
        table.add_column(heading, justify="left" if not heading else "right")
    for name, outcome in (("treated", verdict.treated), ("untreated", verdict.untreated)):
        entropy = "" if outcome.entropy is None else f"{outcome.entropy:.2f}"
        table.add_row(name, f"{outcome.accuracy.value:.2f}", entropy)
    console.print()
    console.print(table)
    console.print(f"\n{verdict.sentence()}", markup=False)
