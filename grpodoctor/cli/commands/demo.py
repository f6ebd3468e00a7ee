"""`grpodoctor demo`."""

from __future__ import annotations

import shlex
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from grpodoctor.errors import MissingExtraError, RunError

if TYPE_CHECKING:
    from rich.console import Console

    from grpodoctor.trials.twins import TrainingProcess, TwinComparison

FAULT = (
    "engine.precision=int4",
    "engine.old_logprobs=sampler",
    "threads=1",
    "evaluation.every=5",
    "evaluation.prompts=128",
)
"""A sampler quantized to four bits whose log-probabilities are used as those of the old policy, as
in a production stack that trusts its inference engine. No number is injected anywhere."""


def demo(
    directory: Annotated[
        Path, typer.Option("--dir", help="Directory of the two runs and the report.")
    ] = Path("demo"),
    steps: Annotated[int, typer.Option("--steps", min=20, help="Training steps.")] = 120,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Seed of both runs.")] = 0,
    again: Annotated[
        bool, typer.Option("--again", help="Replace the runs of an earlier demo in --dir.")
    ] = False,
) -> None:
    """Train a model with a planted fault, treat it live, and write a report.

    Two runs start from the same seed and the same faulty configuration. One is watched and treated,
    the other is not. The report shows both in the same charts.
    """
    for package in ("torch", "transformers"):
        if find_spec(package) is None:
            raise MissingExtraError("the demo", "torch")
    from rich.console import Console

    console = Console(highlight=False, soft_wrap=True)
    run_dirs = (directory / "treated", directory / "untreated")
    with _explain_unwritable(directory):
        for run_dir in run_dirs:
            _remove_earlier_run(run_dir, again=again)
        _check_writable(directory)
    _introduce(console, seed)
    with _explain_unwritable(directory):
        twins = _launch(run_dirs, steps=steps, seed=seed)
    try:
        _follow(twins)
        for twin in twins:
            _wait_for(twin, steps)
    finally:
        for twin in twins:
            twin.end()
    _conclude(console, directory, *run_dirs)


@contextmanager
def _explain_unwritable(directory: Path) -> Iterator[None]:
    """Report a directory that cannot be written in one line.

    Raises:
        RunError: in place of an OSError.
    """
    try:
        yield
    except OSError as error:
        raise RunError(
            f"the directory cannot be written: {error.strerror or error}",
            where=str(directory),
            remedy="choose another --dir",
        ) from error


def _remove_earlier_run(run_dir: Path, *, again: bool) -> None:
    if not run_dir.exists():
        return
    if not (again and (run_dir / "run.json").is_file()):
        raise RunError(
            "the directory already exists",
            where=str(run_dir),
            remedy="choose another --dir, or replace an earlier demo with --again",
        )
    shutil.rmtree(run_dir)


def _check_writable(directory: Path) -> None:
    """Create the directory and a file in it, before minutes of training."""
    directory.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryFile(dir=directory):
        pass


def _introduce(console: Console, seed: int) -> None:
    """Warm-start the model while its progress is visible; both runs then load it from the cache."""
    from grpodoctor.trainer.config.train_config import load_config
    from grpodoctor.trainer.data.loading import build_task
    from grpodoctor.trainer.model.policy import is_warm_start_cached, load_policy

    config = load_config(assignments=[*FAULT, f"seed={seed}"])
    task = build_task(config.task)
    if is_warm_start_cached(config, task):
        console.print("Model: the built-in one, warm-started by supervised training (cached).")
    else:
        console.print("Model: the built-in one. Warm-starting it by supervised training ...")
        started = time.monotonic()
        load_policy(config, task)
        console.print(f"Warm start done after {time.monotonic() - started:.0f} s.")
    console.print(
        "Fault: the sampling engine is quantized to int4, and the learner uses the engine's\n"
        "log-probabilities as those of its old policy. Two runs start from the same seed. One is\n"
        "watched and treated, the other is not.\n"
    )


def _launch(
    run_dirs: tuple[Path, Path], *, steps: int, seed: int
) -> tuple[TrainingProcess, TrainingProcess]:
    from grpodoctor.trials.twins import launch

    treated = launch(run_dirs[0], steps=steps, seed=seed, assignments=FAULT)
    return treated, launch(run_dirs[1], steps=steps, seed=seed, assignments=FAULT)


def _follow(twins: tuple[TrainingProcess, TrainingProcess]) -> None:
    """Watch and treat the first run until it ends."""
    from grpodoctor.cli.commands.watch import follow_in_terminal
    from grpodoctor.monitor.session import Session

    def ended() -> bool:
        for twin in twins:
            twin.check()
        return session.examination.finished or not twins[0].is_running()

    session = Session(twins[0].run_dir, apply="safe")
    follow_in_terminal(session, ended=ended)


def _wait_for(twin: TrainingProcess, steps: int) -> None:
    """Wait for a run that takes longer than the one on screen."""
    from grpodoctor.support.progress import progress_bar

    with progress_bar(f"waiting for the {twin.run_dir.name} run", total=steps) as progress:
        while twin.is_running():
            progress.update(twin.steps_done())
            time.sleep(0.2)
    twin.check()


def _conclude(console: Console, directory: Path, treated: Path, untreated: Path) -> None:
    from grpodoctor.monitor.replay import replay
    from grpodoctor.monitor.report_data import ComparisonRun
    from grpodoctor.report import html
    from grpodoctor.report.run.phrases import summary_lines
    from grpodoctor.report.run.view import view_of
    from grpodoctor.trials.twins import TwinComparison, result_of

    comparison = TwinComparison(result_of(treated), result_of(untreated))
    baseline = ComparisonRun("untreated twin", replay(untreated).series, comparison.sentence())
    data = replay(treated)
    page = directory / "report.html"
    content = html.render(view_of(data.with_comparison(baseline)))
    with _explain_unwritable(directory):
        page.write_text(content, encoding="utf-8")
    for line in summary_lines(data.report):
        console.print(line, markup=False)
    _print_comparison(console, comparison)
    console.print(f"\nReport with charts of both runs: {page}", markup=False)
    runs = shlex.quote(str(directory))
    console.print(f"Both runs in the browser: grpodoctor dashboard {runs}", markup=False)


def _print_comparison(console: Console, comparison: TwinComparison) -> None:
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for heading in ("", "held-out accuracy", "entropy"):
        table.add_column(heading, justify="left" if not heading else "right")
    for name, result in (("treated", comparison.treated), ("untreated", comparison.untreated)):
        entropy = "" if result.entropy is None else f"{result.entropy:.2f}"
        table.add_row(name, f"{result.accuracy.value:.2f}", entropy)
    console.print()
    console.print(table)
    console.print(f"\n{comparison.sentence()}", markup=False)
