"""The observed losses, against verl's own in the environment that has verl."""

from __future__ import annotations

import json
import logging
import os
import re
import shlex
import socket
import subprocess
import sys
import tomllib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from grpodoctor import attach
from grpodoctor.api import open_run
from grpodoctor.frameworks.verl.knobs import ACTOR, KNOBS, modes
from grpodoctor.frameworks.verl.metrics import _CLIP
from grpodoctor.hooks.verl.framework_adapter import VerlAdapter
from grpodoctor.hooks.verl.loss_recorder import RUN_DIR, UPDATES_PER_STEP
from tests.samples import sampled

ROOT = Path(__file__).parents[3]
PYTHON = ROOT / ".venv-verl" / "bin" / "python"
PROGRAM = Path(__file__).with_name("losses.py")
needs_verl = pytest.mark.skipif(not PYTHON.exists(), reason="make venv-verl creates it")


@pytest.fixture
def plugin(tmp_path: Path) -> Path:
    """The entry point as pip installs it, from pyproject.toml."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    points = project["entry-points"]["verl.plugins"]
    folder = tmp_path / "site" / "plugin-1.dist-info"
    folder.mkdir(parents=True)
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: plugin\nVersion: 1\n")
    lines = [f"{name} = {target}" for name, target in points.items()]
    (folder / "entry_points.txt").write_text("\n".join(["[verl.plugins]", *lines, ""]))
    return folder.parent


def environment(plugin: Path) -> dict[str, str]:
    path = os.pathsep.join([str(plugin), str(ROOT)])
    return {**os.environ, "HF_HUB_OFFLINE": "1", "VERL_USE_EXTERNAL_PLUGINS": "grpodoctor",
        "PYTHONPATH": path}  # fmt: skip


def drive(plugin: Path, *task: str, **variables: str) -> tuple[Any, str]:
    """Run a task of losses.py; returns its result and its standard error."""
    done = subprocess.run([PYTHON, PROGRAM, *task], capture_output=True, text=True, timeout=280,
        env={**environment(plugin), **variables}, check=False)  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout.splitlines()[-1]), done.stderr


@pytest.mark.slow
@needs_verl
def test_an_observed_loss_is_equal_to_the_loss_of_verl_to_the_last_bit(
    plugin: Path, tmp_path: Path
) -> None:
    results, _ = drive(plugin, "compare", **{RUN_DIR: str(tmp_path / "run")})
    assert len(results) == 44
    for name, (own, observed) in results.items():
        for part in ("loss", "gradient", "random"):
            assert own[part] == observed[part], (name, part)
        assert own["metrics"].items() <= observed["metrics"].items(), name
        assert None not in observed["metrics"].values(), name


@needs_verl
@pytest.mark.parametrize("mode", sampled(["vanilla", "gspo"], ()))
def test_steps_are_recorded_and_a_requested_clip_takes_effect(
    mode: str, plugin: Path, tmp_path: Path
) -> None:
    run_dir = tmp_path / "run"
    done, _ = drive(plugin, "train", mode, **{RUN_DIR: str(run_dir), UPDATES_PER_STEP: "2"})
    assert [each["loss"] for each in done["results"][8:]] == [
        each["loss"] for each in done["expected"]
    ]
    assert done["unchanged"] == 0.2
    steps = open_run(run_dir).steps().to_pylist()
    assert [step["step"] for step in steps] == [0, 1, 2]
    for number, step in enumerate(steps):
        assert step["updates_per_batch"] == 2
        calls = done["results"][4 * number : 4 * number + 4]
        clipped = sum(each["metrics"]["actor/pg_clipfrac"] * each["tokens"] for each in calls)
        total = sum(each["tokens"] for each in calls)
        if mode == "vanilla":
            recorded = step["clip/low_rate"] + step["clip/high_rate"]
            assert recorded == pytest.approx(clipped / total, abs=1e-6)
        assert step["ratio/max"] > 1.5
    events = (run_dir / "events.jsonl").read_text()
    assert '"treatment-applied","step":1' in events


@pytest.mark.slow
@needs_verl
def test_a_failing_recorder_changes_neither_the_loss_nor_the_keys(
    plugin: Path, tmp_path: Path
) -> None:
    done, errors = drive(plugin, "fail", **{RUN_DIR: str(tmp_path / "run")})
    assert done["calls"] == 2
    for own, observed in zip(done["expected"], done["results"], strict=True):
        assert own["loss"] == observed["loss"]
        assert own["gradient"] == observed["gradient"]
    assert len({tuple(each["metrics"]) for each in done["results"]}) == 1
    assert errors.count("planted") == 1


@needs_verl
@pytest.mark.slow
def test_two_ranks_change_the_clip_at_the_same_step(plugin: Path, tmp_path: Path) -> None:
    shared = {RUN_DIR: str(tmp_path / "run"), UPDATES_PER_STEP: "1", "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(free_port()), "WORLD_SIZE": "2"}  # fmt: skip
    with ThreadPoolExecutor(2) as pool:
        jobs = [pool.submit(drive, plugin, "ranks", **shared, RANK=rank) for rank in "01"]
        first, second = (job.result()[0] for job in jobs)
    assert first == second
    assert sorted(set(first)) == [0.2, 0.5]
    assert len(open_run(tmp_path / "run").steps()) == 8


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


@pytest.mark.slow
@needs_verl
def test_verl_accepts_the_printed_settings(plugin: Path) -> None:
    lines = [line for line in VerlAdapter.instructions.splitlines() if line.startswith("  ")]
    overrides = [shlex.split(line.partition(" #")[0])[0] for line in lines]
    assert len(overrides) == 5
    program = ROOT / "tests" / "remedies" / "verl_config.py"
    done = subprocess.run([PYTHON, program], input=json.dumps({"printed": overrides}),
        capture_output=True, text=True, timeout=280, check=True,
        env=environment(plugin))  # fmt: skip
    assert json.loads(done.stdout.splitlines()[-1]) == {"printed": ""}


def outside_verl(code: str) -> str:
    """What Python prints to standard error in an environment without verl."""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=100,
        check=True, cwd=ROOT)  # fmt: skip
    return done.stderr


def test_a_plugin_that_cannot_register_says_so_in_a_line_each() -> None:
    code = "import sys, types; sys.modules['verl'] = types.ModuleType('verl')"
    losses, advantages = outside_verl(f"{code}; import grpodoctor.hooks.verl.plugin").splitlines()
    assert "verl's policy losses cannot be observed" in losses
    assert "verl's advantage estimators cannot be observed" in advantages


def test_the_plugin_is_silent_outside_verl() -> None:
    assert outside_verl("import grpodoctor.hooks.verl.plugin") == ""


def test_the_names_of_observed_losses_mean_what_verls_names_mean() -> None:
    for mode, loss in {"vanilla": "ppo_clip", "gspo": "gspo", "dppo_tv": "dppo_binary_tv"}.items():
        for name in modes(mode):
            assert KNOBS.read({f"{ACTOR}.policy_loss.loss_mode": name})["loss"] == loss
    with_mode = [row for row in _CLIP if row.when and "actor/grpodoctor" not in str(row.key)]
    assert with_mode
    for row in with_mode:
        (names,) = row.when.values()
        plain = [str(name) for name in names if not str(name).startswith("grpodoctor")]
        assert set(names) == set(modes(*plain))


def test_attach_to_a_trainer_of_verl_names_the_way_that_works(
    caplog: pytest.LogCaptureFixture,
) -> None:
    kind = type("RayPPOTrainer", (), {"__module__": "verl.trainer.ppo.ray_trainer"})
    with caplog.at_level(logging.WARNING, "grpodoctor"):
        assert not attach(kind()).active
    (line,) = caplog.messages
    assert re.search("grpodoctor attach --framework verl", line)
