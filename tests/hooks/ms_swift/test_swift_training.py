"""Real trainings with ms-swift on the CPU, in the environment that has it."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

import grpodoctor
from grpodoctor.vocabulary.values import scalar

ROOT = Path(__file__).parents[3]
PYTHON = ROOT / ".venv-swift" / "bin" / "python"
PROGRAM = Path(__file__).with_name("train_swift.py")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(900),
    pytest.mark.skipif(not PYTHON.exists(), reason="make venv-swift creates it"),
]
MODEL = """
import sys, torch
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM
words = {word: place for place, word in enumerate(["<pad>", "<end>", *"0123456789+= a"])}
tokenizer = Tokenizer(models.WordLevel(words, unk_token="<pad>"))
tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex("."), "isolated")
tokenizer.decoder = decoders.Fuse()
template = "{% for message in messages %}{{ message['content'] }}{% endfor %}"
named = {"unk_token": "<pad>", "pad_token": "<pad>", "eos_token": "<end>"}
PreTrainedTokenizerFast(
    tokenizer_object=tokenizer, chat_template=template, **named
).save_pretrained(sys.argv[1])
torch.manual_seed(0)
Qwen2ForCausalLM(Qwen2Config(
    vocab_size=len(words), hidden_size=32, intermediate_size=64, num_hidden_layers=2,
    num_attention_heads=2, num_key_value_heads=2, tie_word_embeddings=False, eos_token_id=1,
    pad_token_id=0, bos_token_id=None, max_position_embeddings=256,
)).save_pretrained(sys.argv[1])
"""
"""Written by ms-swift's version of transformers."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("swift")


@pytest.fixture(scope="module")
def weights(folder: Path) -> dict[str, str]:
    """Digests of the weights, by training."""
    model, runs = folder / "model", folder / "runs"
    runs.mkdir()
    for command in (["-c", MODEL, str(model)], [str(PROGRAM), str(runs), str(model)]):
        done = subprocess.run(
            [PYTHON, *command], capture_output=True, text=True, timeout=800, check=False,
            cwd=folder, env={**os.environ, "PYTHONPATH": str(ROOT), "HF_HUB_OFFLINE": "1"},
        )  # fmt: skip
        assert done.returncode == 0, done.stderr[-3000:]
    found: dict[str, str] = json.loads(done.stdout.splitlines()[-1])
    return found


def test_the_weights_are_those_of_a_training_without_grpodoctor(weights: dict[str, str]) -> None:
    assert weights["attached"] == weights["plain"]


def test_the_record_agrees_with_the_log_of_ms_swift(weights: dict[str, str], folder: Path) -> None:
    assert weights
    run = grpodoctor.open_run(folder / "runs" / "attached" / "grpodoctor")
    records = list(run)
    lines = (folder / "runs" / "attached" / "logging.jsonl").read_text().splitlines()
    rows = {row["global_step/max_steps"]: row for row in map(json.loads, lines) if "loss" in row}
    assert [f"{record.step}/6" for record in records] == list(rows)
    for record, row in zip(records, rows.values(), strict=True):
        values = record.values
        assert scalar(values["entropy/mean"]) == pytest.approx(row["entropy/mean"])
        assert ("reward/mean" in values) == ("reward" in row)  # three updates per rollout batch
        if "reward" in row:
            assert scalar(values["reward/mean"]) == pytest.approx(row["reward"])
    assert "reward/mean" in records[3].values
    assert run.manifest.knobs["updates_per_batch"] == 3
    assert any(event.kind == "finished" for event in run.events)


@pytest.mark.parametrize("case", ["clip", "penalty", "truncated", "rate"])
def test_a_request_has_the_effect_of_the_setting(
    weights: dict[str, str], folder: Path, case: str
) -> None:
    assert weights[f"{case} treated"] == weights[f"{case} configured"]
    assert weights[f"{case} treated"] != weights["plain"]
    run = grpodoctor.open_run(folder / "runs" / case / "grpodoctor")
    assert [event.kind for event in run.events].count("treatment-applied") == 1
