"""Bad input on the command line: one clear line, no traceback, intact checkpoints."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import NamedTuple

import pytest
import torch
from safetensors.torch import load_file

from grpodoctor.cli.main import app
from grpodoctor.trainer.model.checkpoint import checkpoints
from tests.trainer.families import WORDS, build, save, save_tokenizer

SMALL = (
    *("threads=1", "model.warm_start_steps=0", "evaluation.every=0", "rollout.max_length=8"),
    *("rollout.prompts_per_batch=4", "rollout.group_size=4", "steps=4"),
)
REWARDS = """
from pathlib import Path
calls = 0
def late(what):
    def reward(prompts, completions, answers):
        global calls
        calls += 1
        broken = calls > 2 and not Path("mended").exists()
        return what(len(prompts)) if broken else [float(len(each)) for each in completions]
    return reward
short = late(lambda count: [1.0] * (count - 1))
nan = late(lambda count: [float("nan")] * count)
nested = late(lambda count: [[1.0]] * count)
none = late(lambda count: None)
failing = late(lambda count: 1 / 0)
"""


class Ended(NamedTuple):
    code: int
    stderr: str


@pytest.fixture
def train(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    """`grpodoctor train`, in this process and an empty directory."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])

    def run(*assignments: str, resume: bool = False) -> Ended:
        settings = [part for each in assignments for part in ("--set", each)]
        with pytest.raises(SystemExit) as ended:
            app(["train", "--run-dir", "out", *(["--resume"] if resume else []), *settings])
        return Ended(int(ended.value.code or 0), capsys.readouterr().err)

    return run


def error_line(ended: Ended) -> str:
    assert ended.code == 2, ended.stderr
    (line,) = [line for line in ended.stderr.splitlines() if line.startswith("error: ")]
    return line


def larger_tokenizer(folder: Path) -> None:
    save("qwen2", folder)
    save_tokenizer(folder, words=[*WORDS, *"abcdefgh"])


def end_token_outside(folder: Path) -> None:
    save("qwen2", folder)
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": [1, 99]}))


def pickled(folder: Path) -> None:
    save("qwen2", folder)
    torch.save(build("qwen2").state_dict(), folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()


MODELS = {
    larger_tokenizer: "the tokenizer has 28 ids and the model 24 embeddings",
    end_token_outside: "no end token is declared that the model can generate",
    pickled: "no safetensors weights",
}


@pytest.mark.parametrize("make", MODELS)
def test_a_model_that_does_not_fit(make, train, tmp_path: Path) -> None:
    make(tmp_path / "model")
    line = error_line(train(*SMALL, "model.name=model"))
    assert MODELS[make] in line
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("assignment", "expected"),
    [
        ("task.data=empty.jsonl", "the data file has no rows"),
        ("rollout.group_size=1", "rollout.group_size cannot be '1'"),
        ("task.rewards=[{function='os:getcwd'}, {function='re:getcwd'}]", "are named 'getcwd'"),
        ("steps=true", "steps cannot be 'True'"),
    ],
)
def test_problems_before_the_first_step_are_one_line(
    assignment: str, expected: str, train, tmp_path: Path
) -> None:
    (tmp_path / "empty.jsonl").write_text("\n")
    assert expected in error_line(train(*SMALL, assignment))
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("short", "returned 15 rewards for 16 completions"),
        ("nan", "returned 'nan' for completion 0"),
        ("nested", "returned '[1.0]' for completion 0"),
        ("none", "returned NoneType"),
        ("failing", "raised ZeroDivisionError"),
    ],
)
def test_a_reward_that_breaks_in_a_run_leaves_the_last_step(
    name: str, expected: str, train, tmp_path: Path
) -> None:
    (tmp_path / f"mine_{name}.py").write_text(REWARDS)
    assert expected in error_line(train(*SMALL, f"task.reward=mine_{name}:{name}"))
    (kept,) = checkpoints(tmp_path / "out")
    assert kept.name == "step-000002"
    assert all(tensor.isfinite().all() for tensor in load_file(kept / "model.safetensors").values())
    if name == "nan":
        (tmp_path / "mended").touch()
        assert train(resume=True).code == 0
        assert checkpoints(tmp_path / "out")[-1].name == "step-000004"
