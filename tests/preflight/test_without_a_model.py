"""A preflight of prompts and a reward function, before there is a model."""

from __future__ import annotations

import json
from contextlib import chdir
from pathlib import Path
from typing import Any

import pytest

from tests.cli.in_process import run

SUMS = [(f"What is {i} + {j}?", str(i + j)) for i in range(10, 22) for j in range(10, 22)]
REWARD = """

def last_number(prompts, completions, answers):
    return [float(text.split()[-1:] == [answer]) for text, answer in zip(completions, answers)]

def anywhere(prompts, completions, answers):
    return [float(answer in text) for text, answer in zip(completions, answers)]
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write(tmp_path, SUMS)
    (tmp_path / "rewards.py").write_text(REWARD)
    return tmp_path


def write(folder: Path, rows: list[tuple[str, str]]) -> None:
    lines = [json.dumps({"prompt": prompt, "answer": answer}) for prompt, answer in rows]
    (folder / "train.jsonl").write_text("\n".join(lines))


def results(folder: Path, *options: str) -> dict[str, Any]:
    with chdir(folder):
        done = run("preflight", "--prompts", "train.jsonl", *options, "--json")
    parsed: dict[str, Any] = json.loads(done.stdout)
    return parsed


def codes(found: dict[str, Any]) -> set[str]:
    return {finding["code"] for finding in found["findings"]}


def test_a_sound_set_and_reward_pass(folder: Path) -> None:
    found = results(folder, "--reward", "rewards.py:last_number")
    # Two notes: `last_number` takes no unit, and what the first step would show.
    assert codes(found) == {"REW104", "GRP103"}
    assert {"DAT107", "REW101", "REW102"} <= set(found["passed"])
    assert found["failed"] == []


def test_checks_that_read_the_model_say_so(folder: Path) -> None:
    skipped = {each["code"]: each for each in results(folder)["skipped"]}
    for code in ("DAT101", "DAT103", "DAT106", "MOE101", "OPT101"):
        assert skipped[code]["why"] == "no model was given"
        assert skipped[code]["how"] == "pass --model DIR"


def test_a_reward_for_any_mention_is_named(folder: Path) -> None:
    assert "REW102" in codes(results(folder, "--reward", "rewards.py:anywhere"))


def test_prompts_that_were_cut_are_found_by_their_letters(folder: Path) -> None:
    story = "The farmer has {n} sheep and sells some of them on the market. How many does he keep?"
    texts = [story.format(n=n) * (1 + n % 3) for n in range(100, 160)]
    write(folder, [(text[:150], "7") for text in texts])
    assert "DAT115" in codes(results(folder))


def test_an_image_without_a_file_is_found(folder: Path) -> None:
    write(folder, [(f"<image> How many of the {n} birds fly?", "7") for n in range(60)])
    assert "DAT118" in codes(results(folder))


def test_an_engine_requires_the_model(folder: Path) -> None:
    with chdir(folder):
        done = run("preflight", "--prompts", "train.jsonl", "--sampler", "vllm:MODEL")
    assert (done.returncode, done.stdout) == (2, "")
    assert "--sampler requires --model" in done.stderr
