"""The commands that test likely causes: accepted by the command line, and run for real."""

import os
import shlex
import subprocess
import sys
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from grpodoctor.probe.inputs.engine_spec import EngineSpec
from grpodoctor.probe.results.results_json import read_result
from grpodoctor.probe.run_mismatch.experiment_commands import command_lines, with_command
from grpodoctor.probe.run_mismatch.run_mismatch import measure_run
from grpodoctor.probe.run_mismatch.run_source import RunSource, source_of
from grpodoctor.probe.run_mismatch.signatures import CauseKind, LikelyCause
from grpodoctor.probe.severity import figure
from tests.cli.in_process import run as grpodoctor
from tests.probe.run_mismatch.conftest import JUMP_STEP

SOURCE = RunSource(
    run=Path("runs/mine"), steps=(18, 19, 20), ids="prompts", model="", temperature=1.0,
    checkpoints=(),
)  # fmt: skip
ONE_SIDE: tuple[CauseKind, ...] = (
    "copied", "end-token", "prompts", "truncated-support", "temperature", "long-context",
    "few-responses",
)  # fmt: skip
BOTH_SIDES: tuple[CauseKind, ...] = ("unknown", "undelivered-weights", "jump")
REPOSITORY = Path(__file__).parents[3]
RECORDS: tuple[CauseKind, ...] = ("log-unit", "shifted", "storage-precision")


def made(kind: CauseKind, source: RunSource = SOURCE, since: int = 0) -> LikelyCause:
    return with_command(LikelyCause(kind, "a cause", "numbers", "an experiment"), source, since)


def specs(command: str) -> list[EngineSpec]:
    words = shlex.split(command)
    values = [after for before, after in pairwise(words) if before[:2] == "--"]
    return [EngineSpec.parse(value) for value in values if ":" in value]


def in_shell(command: str, folder: Path = REPOSITORY) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["/bin/bash", "-c", command],
        capture_output=True, text=True, timeout=300, check=False, cwd=folder,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
    )  # fmt: skip


@pytest.mark.parametrize("kind", [*ONE_SIDE, *BOTH_SIDES, *RECORDS])
def test_every_cause_has_a_command(kind: CauseKind) -> None:
    *samplers, learner = specs(made(kind).command)
    sides = [spec.options["side"] for spec in samplers]
    assert sides == (["sampler", "learner"] if kind in BOTH_SIDES else ["sampler"])
    assert {(spec.engine, spec.model) for spec in samplers} == {("recorded", "runs/mine")}
    assert learner.engine == ("recorded" if kind in RECORDS else "transformers")
    assert all(spec.options["step"] == 20 for spec in samplers)


def test_a_healthy_gap_has_no_command() -> None:
    healthy = LikelyCause("rounding", "rounding", "numbers", "", is_fault=False)
    assert with_command(healthy, SOURCE, 0).command == ""


def test_the_model_of_the_run_is_named() -> None:
    unknown = made("temperature")
    assert specs(unknown.command)[-1].model == "MODEL"
    assert "from which step 20 was sampled" in unknown.note
    late = made("temperature", replace(SOURCE, model="Qwen/Qwen3-0.6B"))
    assert specs(late.command)[-1].model == "Qwen/Qwen3-0.6B"
    assert "run's start" in late.note
    early = made("temperature", replace(SOURCE, model="Qwen/Qwen3-0.6B", steps=(1, 2)))
    assert specs(early.command)[0].options["step"] == 1
    assert "MODEL" not in early.command + early.note
    assert early.note == ""


def test_a_checkpoint_scores_the_step_that_it_sampled() -> None:
    saved = (18, Path("runs/mine/checkpoints/step-000018"))
    source = replace(SOURCE, checkpoints=(saved,))
    sampler, learner = specs(made("temperature", source).command)
    assert (sampler.options["step"], learner.model) == (19, str(saved[1]))
    since_20 = made("temperature", source, since=20)
    assert specs(since_20.command)[0].options["step"] == 20
    newest = replace(SOURCE, checkpoints=((20, saved[1]),))
    assert "one step newer" in made("temperature", newest).note


def test_other_weights_only_tell_which_side_is_wrong() -> None:
    """A search for causes would explain the updates between the weights."""
    newest = replace(SOURCE, checkpoints=((20, Path("runs/mine/checkpoints/step-000020")),))
    exact = replace(SOURCE, checkpoints=((19, Path("runs/mine/checkpoints/step-000019")),))
    assert made("jump", newest).command.endswith(" --no-attribution")
    assert "--no-attribution" not in made("jump", exact).command
    assert "--no-attribution" not in made("temperature", newest).command


def test_old_weights_are_those_of_the_start() -> None:
    saved = (19, Path("runs/mine/checkpoints/step-000019"))
    source = replace(SOURCE, model="Qwen/Qwen3-0.6B", checkpoints=(saved,))
    stale = made("undelivered-weights", source)
    assert specs(stale.command)[-1].model == "Qwen/Qwen3-0.6B"
    assert specs(stale.command)[0].options["step"] == 20
    assert "never received an update" in stale.note
    assert specs(made("jump", source).command)[-1].model == str(saved[1])


def test_temperature_and_tokenizer_are_given() -> None:
    hot = made("prompts", replace(SOURCE, temperature=0.7))
    assert hot.command.endswith("--temperature 0.7")
    text = made("prompts", replace(SOURCE, ids="responses", model="a&b/c%d"))
    assert specs(text.command)[0].options["tokenizer"] == "a&b/c%d"
    assert made("prompts", replace(SOURCE, ids="none")).command == ""


@pytest.mark.parametrize("name", ["with space", "it's", "a&b;c", "$HOME", "~mine", "a?b", "日本"])
def test_paths_survive_the_shell_and_the_engine(name: str, tmp_path: Path) -> None:
    run = tmp_path / name if name[0] != "~" else Path(name)
    if name[0] != "~":
        (run / "checkpoints").mkdir(parents=True)
    checkpoint = (20, run / "checkpoints" / "step-000020")
    command = made("unknown", replace(SOURCE, run=run, checkpoints=(checkpoint,))).command
    shown = in_shell(command.replace("grpodoctor probe", "pwd && printf '%s\\n'"), tmp_path)
    folder, *words = shown.stdout.splitlines()
    sampler, _, learner = (EngineSpec.parse(word) for word in words if ":" in word)
    if name[0] == "~":
        assert sampler.model == f"./{name}"
        return
    assert Path(folder, sampler.model).resolve() == run.resolve()
    assert Path(folder, learner.model).resolve() == checkpoint[1].resolve()


def test_lines_are_the_command() -> None:
    command = made("jump", replace(SOURCE, run=Path("with space"), temperature=0.5)).command
    lines = command_lines(command)
    assert len(lines) == 5
    shown = in_shell("\n".join(lines).replace("grpodoctor probe", "printf '%s\n'"))
    assert shown.stdout.splitlines() == shlex.split(command)[2:]


@pytest.mark.slow
def test_the_side_that_jumped_is_found_by_the_command(jumped: Path, tmp_path: Path) -> None:
    result = measure_run(jumped, 20)
    assert (result.trend.direction, result.trend.jump_step) == ("jumps", JUMP_STEP)
    assert result.severity == "critical"
    cause = result.causes[0]
    assert cause.kind == "jump"
    assert f"step {JUMP_STEP}" in cause.cause
    words = shlex.split(cause.command)
    assert words[:2] == ["grpodoctor", "probe"]
    done = grpodoctor(*words[1:], "--no-attribution", "--output", tmp_path / "out")
    assert done.returncode == 1, done.stderr
    sampler, learner = read_result(tmp_path / "out" / "probe.json").cells
    gaps = [
        figure(cell.comparison, "mismatch/kl_k3")
        for cell in (sampler, learner)
        if cell.comparison is not None
    ]
    assert gaps[0] > 0.01
    assert gaps[1] < 1e-6, "the checkpoint before the step has the weights that scored it"


@pytest.mark.slow
def test_a_wrong_unit_is_proven_by_the_command(trained: Path, tmp_path: Path) -> None:
    run = tmp_path / "a run?"
    (run / "rollouts").mkdir(parents=True)
    for file in sorted((trained / "rollouts").glob("*.parquet")):
        table = pq.read_table(file)
        place = table.schema.get_field_index("sampler_logprobs")
        column = table.column("learner_logprobs").to_pylist()
        scaled = pa.array(
            [list(np.array(row) / np.log(2)) for row in column], table.schema[place].type
        )
        pq.write_table(
            table.set_column(place, table.schema[place], scaled), run / "rollouts" / file.name
        )
    cause = measure_run(run, 5).causes[0]
    assert cause.kind == "log-unit"
    program = cause.command.replace(
        "&& grpodoctor", f"&& {shlex.quote(sys.executable)} -m grpodoctor"
    )
    done = in_shell(f"{program} --output {shlex.quote(str(tmp_path / 'out'))}")
    assert done.returncode == 1, done.stderr
    assert "PROVEN  log-base" in done.stdout


@pytest.mark.slow
def test_a_run_knows_its_source(jumped: Path) -> None:
    source = source_of(jumped, (11, 12), "prompts")
    assert source.model == "", "the built-in model is no name that an engine can load"
    assert [step for step, _ in source.checkpoints] == [11, 12]
    assert source.temperature == 1.0
