"""llama.cpp with a GGUF file made of the dense test model.

llama-cpp-python has no wheel here and is built for minutes, so these tests run where
GRPODOCTOR_LLAMA_PYTHON names a Python that has it and `gguf`:

    python -m venv /tmp/llama && /tmp/llama/bin/pip install llama-cpp-python gguf
    GRPODOCTOR_LLAMA_PYTHON=/tmp/llama/bin/python make test

What needs no llama.cpp is tested everywhere.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from tests.probes.models import BOS, TEMPLATE, WORDS, messages, prompts_file, tokenizer
from tests.probes.programs import Ran, run, sample, score

PYTHON = os.environ.get("GRPODOCTOR_LLAMA_PYTHON", "")
PROMPTS = 6
needs_llama = pytest.mark.skipif(
    not PYTHON, reason="GRPODOCTOR_LLAMA_PYTHON names no Python with llama-cpp-python"
)


@pytest.fixture(scope="module")
def gguf(dense_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The dense model as a GGUF file in float32."""
    return written(dense_model, tmp_path_factory.mktemp("gguf"), template=TEMPLATE)


def written(model: Path, folder: Path, **facts: str) -> Path:
    """A GGUF file of a model's weights and of facts, see `gguf_model.py`."""
    weights = load_file(model / "model.safetensors")
    np.savez(folder / "w.npz", **{name: each.float().numpy() for name, each in weights.items()})
    config = json.loads((model / "config.json").read_text())
    (folder / "facts.json").write_text(json.dumps({"config": config, "words": WORDS} | facts))
    writer = Path(__file__).with_name("gguf_model.py")
    arguments = [folder / "w.npz", folder / "facts.json", folder / "model.gguf"]
    subprocess.run([PYTHON, writer, *arguments], check=True, timeout=120)
    return folder / "model.gguf"


@pytest.fixture(scope="module")
def ran(gguf: Path, tmp_path_factory: pytest.TempPathFactory) -> Ran:
    """Samples and scores, with a cache in float32; its last task is too long a prompt."""
    folder = tmp_path_factory.mktemp("ran")
    prompts = prompts_file(folder / "prompts.json", PROMPTS)
    spoken, long = folder / "spoken.json", folder / "long.json"
    spoken.write_text(json.dumps([{"messages": messages(1)[0]}, {"text": "12+34="}]))
    long.write_text(json.dumps([{"ids": [7] * 600}]))
    tempered = {"temperature": 0.7, "top_k": 12, "top_p": 0.9, "min_p": 0.02}
    tasks = [
        {"kind": "tokenise", "name": "ids", "prompts": str(spoken)},
        sample(prompts),
        score(folder / "sample"),
        sample(prompts, name="tempered", **tempered),
        score(folder / "tempered", name="retempered", processing=tempered),
        sample(long, name="long"),
    ]
    # Flash attention, llama.cpp's default, computes with sixteen bits.
    options = {"type_k": "f32", "type_v": "f32", "flash_attention": False}
    options |= {"context": 256, "sequences": 5}
    return run("llama_cpp", folder, gguf, tasks, options, PYTHON)


@needs_llama
def test_it_scores_its_own_tokens_and_agrees_with_transformers(ran: Ran, dense_model: Path) -> None:
    from contract import Processing, read_responses
    from engine_transformers import load

    drawn = ran.arrays("sample")["logprobs_N"]
    assert len(drawn) > 300
    assert np.abs(drawn - ran.arrays("score")["logprobs_N"]).max() < 1e-4
    shards = sorted((ran.folder / "sample").glob("shard-*.npz"))
    responses = [each for path in shards for each in read_responses(path)]
    theirs = load(str(dense_model), {"dtype": "float32"}).score(responses, Processing(), ())
    assert np.abs(drawn - np.concatenate([each.logprobs for each in theirs])).max() < 1e-4


@needs_llama
def test_truncated_samples_are_scored_with_the_same_truncation(ran: Ran) -> None:
    drawn, scored = (ran.arrays(name)["logprobs_N"] for name in ("tempered", "retempered"))
    assert np.isfinite(drawn).all()
    assert np.abs(drawn - scored).max() < 1e-3


@needs_llama
def test_prompts_use_the_tokenizer_of_the_file(ran: Ran) -> None:
    own, (spoken, plain) = tokenizer(), ran.ids("ids")
    written = own.apply_chat_template(messages(1)[0], add_generation_prompt=True, tokenize=False)
    assert (spoken, plain) == (own.encode(written), own.encode("12+34="))


@needs_llama
def test_a_template_uses_the_special_tokens_of_the_file(dense_model: Path, tmp_path: Path) -> None:
    refusing = "{% if messages|length > 1 %}{{ raise_exception('one turn alone') }}{% endif %}"
    template = "{{ bos_token }}" + TEMPLATE + refusing
    file = written(dense_model, tmp_path, template=template, begin="<bos>")
    tasks = []
    for name, turns in (("one", 1), ("two", 2)):
        prompts = tmp_path / f"{name}.json"
        talk = [{"role": "user", "content": "1+1="}] * turns
        prompts.write_text(json.dumps([{"messages": talk}]))
        tasks.append({"kind": "tokenise", "name": name, "prompts": str(prompts)})
    ran = run("llama_cpp", tmp_path, file, tasks, {"context": 64}, PYTHON)
    assert ran.ids("one") == [[BOS, *tokenizer().encode("<user>1+1=<assistant>")]]
    assert "rejects a prompt: one turn alone" in ran.error["what"]


@needs_llama
def test_it_describes_itself_and_refuses_long_prompts(ran: Ran) -> None:
    assert "600 tokens do not fit into the context of 256" in ran.error["what"]
    engine = ran.engine
    assert (engine["name"], engine["vocab_size"], engine["end_ids"]) == ("llama_cpp", 64, [1])
    assert (engine["dtype"], engine["begin_id"], engine["context"]) == ("float32", None, 256)
    assert ran.answer["tasks"]["retempered"]["responses"] == 4 * PROMPTS


@needs_llama
def test_a_file_that_is_no_gguf_is_refused(tmp_path: Path) -> None:
    (tmp_path / "model.gguf").write_bytes(b"GGUX" * 100)
    error = run("llama_cpp", tmp_path, tmp_path / "model.gguf", [], {}, PYTHON).error
    assert "llama.cpp cannot load" in error["what"]


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({"n_ctx": 5}, "no option 'n_ctx'"),
        ({"type_k": "q3"}, "type_k=q3 is not a cache type"),
        ({"sequences": 0}, "sequences= must be an integer of at least 1"),
        ({"batch_tokens": 4}, "batch_tokens=4 is less than one token for each of 8 sequences"),
        ({}, "there is no file"),
    ],
)
def test_invalid_options_are_refused(options: dict[str, Any], what: str) -> None:
    from contract import RefusalError
    from engine_llama_cpp import load

    with pytest.raises(RefusalError, match=what):
        load("/nowhere.gguf", options)


@pytest.mark.parametrize(
    "given",
    [{"temperature": 0.5}, {"top_k": 3}, {"top_p": 0.6}, {"min_p": 0.2},
     {"temperature": 1.3, "top_k": 6, "top_p": 0.8, "min_p": 0.1}],
)  # fmt: skip
def test_processing_equals_the_learners(given: dict[str, Any]) -> None:
    from contract import Processing
    from engine_llama_cpp import _processed
    from hf.logits import log_probabilities

    logits = torch.randn(40, 30, generator=torch.Generator().manual_seed(0)) * 2
    processing = Processing(**given)
    theirs = log_probabilities(logits.clone(), processing).numpy()
    ours = _processed(logits.numpy(), processing)
    assert np.array_equal(np.isfinite(ours), np.isfinite(theirs))
    assert np.allclose(ours, theirs, atol=1e-5)


def test_tokens_are_drawn_with_their_probability() -> None:
    from engine_llama_cpp import _sample_token

    logprobs = np.log(np.array([0.5, 0.0, 0.2, 0.3, 0.0]) + 1e-300).astype(np.float32)
    logprobs[[1, 4]] = -np.inf
    source = np.random.default_rng(0)
    counts = np.bincount([_sample_token(logprobs, source) for _ in range(4000)], minlength=5) / 4000
    assert np.abs(counts - [0.5, 0, 0.2, 0.3, 0]).max() < 0.03
    assert counts[1] == counts[4] == 0
