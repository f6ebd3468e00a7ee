"""`grpodoctor train`."""

from __future__ import annotations

import os
import shlex
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated

import typer

from grpodoctor.cli.treated_training import TrainApply, TreatmentOptions, verdict_line
from grpodoctor.errors import ConfigError, GrpodoctorError, MissingExtraError
from grpodoctor.support.lasting_output import outlive_terminal
from grpodoctor.support.numbers import count_of

if TYPE_CHECKING:
    from rich.console import Console

    from grpodoctor.trainer.config.train_config import TrainConfig
    from grpodoctor.trainer.distributed.ranks import Ranks
    from grpodoctor.trainer.loop import StepReport, Trainer


_RunDir = Annotated[
    Path | None, typer.Option("--run-dir", help="Directory of the run. \\[default: runs/<time>]")
]
_Steps = Annotated[
    int | None, typer.Option("--steps", help="Total training steps. \\[default: 100]")
]
_Preset = Annotated[
    str | None,
    typer.Option("--preset", help="Published recipe, such as grpo, dapo, gspo or cispo."),
]
_Config = Annotated[Path | None, typer.Option("--config", help="Config file (TOML).")]
_Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="Config key and value, such as loss.clip_high=0.28; repeatable.",
    ),
]
_Seed = Annotated[int | None, typer.Option("--seed", help="Random seed. \\[default: 0]")]
_Resume = Annotated[
    bool, typer.Option("--resume", help="Continue from the newest checkpoint of --run-dir.")
]
_Apply = Annotated[TrainApply, typer.Option("--apply", help="Remedies to apply to the run.")]
_Fork = Annotated[
    bool,
    typer.Option(
        "--fork",
        help="With --apply: try each remedy on treated and untreated branches of the latest "
        "step, and continue with the better settings.",
    ),
]


def train(
    run_dir: _RunDir = None,
    steps: _Steps = None,
    preset: _Preset = None,
    config: _Config = None,
    settings: _Settings = None,
    seed: _Seed = None,
    resume: _Resume = False,
    apply: _Apply = TrainApply.NONE,
    fork: _Fork = False,
) -> None:
    """Train a language model with GRPO and record its vitals.

    By default the built-in model is trained on the built-in task. --steps and --seed override
    --set, --set overrides --config, and --config overrides --preset. Ctrl-C stops after the current
    step and writes a checkpoint; a second Ctrl-C stops at once.

    For several processes, use torchrun:
    torchrun --nproc-per-node 2 -m grpodoctor train ...
    """
    from rich.console import Console

    assignments = list(settings or ())
    assignments += [f"steps={steps}"] if steps is not None else []
    assignments += [f"seed={seed}"] if seed is not None else []
    if resume and (run_dir is None or preset is not None or config is not None):
        raise ConfigError(
            "--resume uses the configuration of an existing run",
            remedy="pass its directory with --run-dir; change single settings with --set",
        )
    treatment = TreatmentOptions(apply, fork)
    outlive_terminal()
    is_first_rank = os.environ.get("RANK", "0") == "0"
    console = Console(stderr=True, soft_wrap=True, quiet=not is_first_rank)
    fresh = _checked_config(console, preset, config, assignments, resume=resume)
    require_torch()
    from grpodoctor.trainer.distributed.ranks import ranks_from_environment

    ranks = ranks_from_environment()
    directory = run_dir or Path("runs") / time.strftime("%Y%m%d-%H%M%S")
    with _report_once(ranks):
        if fresh is None:
            _resume(console, directory, assignments, ranks, treatment)
        else:
            _run(console, fresh, directory, ranks, treatment, resume=False)


def _checked_config(
    console: Console, preset: str | None, file: Path | None, assignments: list[str], *, resume: bool
) -> TrainConfig | None:
    """The configuration, or None for a resumed run, whose setting names are checked alone.

    Torch is not imported, so a mistyped name is refused at once.

    Raises:
        ConfigError: if a preset or setting is unknown, or a value is invalid.
    """
    from grpodoctor.trainer.config.train_config import check_names

    try:
        if resume:
            check_names(assignments)
            return None
        return _fresh_config(console, preset, file, assignments)
    except ConfigError as error:
        if console.quiet:  # the first rank reports it
            raise typer.Exit(error.exit_code) from None
        raise


def require_torch() -> None:
    """Raise `MissingExtraError` if torch or transformers is not installed."""
    for package in ("torch", "transformers"):
        if find_spec(package) is None:
            raise MissingExtraError("training", "torch")


@contextmanager
def _report_once(ranks: Ranks) -> Iterator[None]:
    """Let only the first rank report an error that all ranks have."""
    try:
        yield
    except GrpodoctorError as error:
        if ranks.is_first or ranks.is_local_error(error):
            raise
        raise typer.Exit(error.exit_code) from None


def _resume(
    console: Console,
    directory: Path,
    assignments: list[str],
    ranks: Ranks,
    treatment: TreatmentOptions,
) -> None:
    from grpodoctor.trainer.model.checkpoint import saved_config, steps_done, unrecorded_note

    config, done = saved_config(directory, assignments), steps_done(directory)
    if note := unrecorded_note(directory):
        console.print(f"note: {note}", highlight=False)
    if done >= config.steps:
        verb = "is" if done == 1 else "are"
        console.print(f"{count_of(done, 'step')} {verb} already done; request more with --steps")
    else:
        _run(console, config, directory, ranks, treatment, resume=True)


def _fresh_config(
    console: Console, preset: str | None, file: Path | None, assignments: list[str]
) -> TrainConfig:
    from grpodoctor.trainer.config.presets import preset_of
    from grpodoctor.trainer.config.train_config import load_config, load_preset

    if preset is None:
        return load_config(file=file, assignments=assignments)
    recipe = preset_of(preset)
    config, notes = load_preset(recipe, file=file, assignments=assignments)
    console.print(f"preset {recipe.name}: {recipe.summary}", markup=False, highlight=False)
    for assignment in recipe.assignments():
        console.print(f"  {assignment}", markup=False, highlight=False)
    for note in notes:
        console.print(f"note: {note}", markup=False, highlight=False)
    return config


def _run(
    console: Console,
    config: TrainConfig,
    directory: Path,
    ranks: Ranks,
    treatment: TreatmentOptions,
    *,
    resume: bool,
) -> None:
    from grpodoctor.support.safe_text import plain

    for warning in (*config.warnings(), *_config_faults(config)):
        console.print(f"note: {warning}", markup=False, highlight=False)
    console.print("loading the model", highlight=False)
    from grpodoctor.trainer.distributed.ranks import exit_rank, process_group
    from grpodoctor.trainer.loop import Trainer

    with process_group(ranks, config.ranks.timeout):
        treatment.check(config, ranks)
        trainer = Trainer(config, directory, resume=resume, ranks=ranks)
        for line in _introduction(trainer):
            console.print(line, markup=False, highlight=False)
        trainer = _train(console, trainer, treatment)
    name = plain(str(directory))
    is_reported = treatment.apply is not TrainApply.NONE and ranks.is_first
    if is_reported and (line := verdict_line(directory)):
        console.print(line, markup=False, highlight=False)
    steps = count_of(trainer.done, "step")
    console.print(f"{steps} done: {name}", markup=False, highlight=False)
    if not trainer.is_saved:
        console.print("the checkpoint of the last step could not be written")
    elif 0 < trainer.done < config.steps:
        command = f"grpodoctor train --run-dir {shlex.quote(name)} --resume"
        console.print(f"to continue: {command}", markup=False, highlight=False)
    exit_rank(ranks)


def _train(console: Console, trainer: Trainer, treatment: TreatmentOptions) -> Trainer:
    """Train to the end, through all forks; return the trainer of the last step."""

    def say(line: str) -> None:
        console.print(line, markup=False, highlight=False)

    with treatment.treating(trainer.run_dir, say) as forks:
        following: Trainer | None = trainer
        while following is not None:
            trainer = following
            with _stop_on_signal(console, trainer), _progress(console, trainer) as show:
                trainer.run(forks.watching(trainer, show))
            following = forks.next_trainer(trainer)
    return trainer


def _config_faults(config: TrainConfig) -> Iterator[str]:
    """The warnings of the rules about the configuration, one line each."""
    from grpodoctor.rules.lint import lint
    from grpodoctor.trainer.config.knobs import knobs_of

    for finding in lint("grpodoctor", config.model_dump(), knobs_of(config)).findings:
        if finding.severity != "info":
            yield f"{finding.code} {finding.name}: {finding.summary}"


def _introduction(trainer: Trainer) -> Iterator[str]:
    """Lines about the model, the steps and how to watch the run."""
    import torch

    from grpodoctor.support.safe_text import plain

    config, rollout = trainer.config, trainer.config.rollout
    weights = sum(each.numel() for each in trainer.learner.parameters)
    task = config.task.data or config.task.name
    device = trainer.policy.model.device
    where = (
        f"on the CPU, {torch.get_num_threads()} threads" if device.type == "cpu" else f"on {device}"
    )
    yield (
        f"model {plain(config.model.name)}: {weights / 1e6:.3g} M trainable weights {where}"
        f"{f' in each of {trainer.ranks.world} ranks' if trainer.ranks.world > 1 else ''}; "
        f"task {plain(task)}"
    )
    yield from map(plain, trainer.task.notes)
    yield (
        f"steps {trainer.done + 1} to {config.steps}: "
        f"{count_of(rollout.prompts_per_batch, 'prompt')} x "
        f"{count_of(rollout.group_size, 'response')}, "
        f"{count_of(config.optimizer.updates_per_batch, 'update')}"
    )
    if config.record.enabled:
        directory = shlex.quote(plain(str(trainer.run_dir)))
        yield f"to watch the run in another terminal: grpodoctor watch {directory}"
    else:
        yield "the run is not recorded (record.enabled=false)"


@contextmanager
def _stop_on_signal(console: Console, trainer: Trainer) -> Iterator[None]:
    """Stop the run after the current step at the first Ctrl-C, SIGTERM or SIGHUP."""
    handlers = {
        number: signal.getsignal(number)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    }
    # An ignored signal was ignored on purpose, for example by nohup.
    before = {number: one for number, one in handlers.items() if one is not signal.SIG_IGN}

    def stop(_number: int, _frame: FrameType | None) -> None:
        trainer.stop()
        restore()
        console.print("stopping after this step; press Ctrl-C again to stop at once")

    def restore() -> None:
        for number, handler in before.items():
            signal.signal(number, handler)

    for number in before:
        signal.signal(number, stop)
    try:
        yield
    finally:
        restore()


@contextmanager
def _progress(console: Console, trainer: Trainer) -> Iterator[Callable[[StepReport], None]]:
    """A bar on a terminal, otherwise a line at each held-out evaluation."""
    if not console.is_terminal:
        yield lambda report: _print_evaluated(console, report)
        return
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )

    # The line fits 80 columns with four-digit step numbers.
    columns = (
        MofNCompleteColumn(),
        BarColumn(bar_width=6),
        TimeRemainingColumn(compact=True),
        TextColumn("{task.description}"),
    )
    with Progress(*columns, console=console) as bar:
        task = bar.add_task("", total=trainer.config.steps, completed=trainer.done)
        heldout: list[float] = []

        def show(report: StepReport) -> None:
            heldout.extend(() if report.heldout is None else (report.heldout,))
            last = f"  eval {heldout[-1]:.2f}" if heldout else ""
            bar.update(task, completed=report.step, description=_line(report) + last)

        yield show


def _print_evaluated(console: Console, report: StepReport) -> None:
    if report.heldout is not None:
        line = f"step {report.step}  {_line(report)}  held out {report.heldout:.2f}"
        console.print(line, highlight=False)


def _line(report: StepReport) -> str:
    accuracy = "" if report.accuracy is None else f"  acc {report.accuracy:.2f}"
    entropy = f"  entropy {report.entropy:.2f}"
    return f"reward {report.reward:+.2f}{accuracy}{entropy}  {report.seconds:.2f} s"
