"""Edits of one phase: the path of generation, faults while a prompt is read, or while decoding."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "probes"))

import engine_transformers
from contract import InapplicableError, Processing, Response, Sampling

from tests.probe.plants import planted_engine
from tests.probe.plants.families import checkpoint, prompts


@pytest.fixture(scope="session")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("phases")


def loaded(folder: Path) -> Any:
    return engine_transformers.load(str(folder), {"threads": 1})


def drawn(engine: Any, repeats: int = 1) -> list[Response]:
    """Responses to prompts of different lengths, each repeated a number of times."""
    ids = [prompt["ids"][: 12 - number] * repeats for number, prompt in enumerate(prompts(4))]
    sampling = Sampling(samples=1, max_tokens=12, ignore_end=True)
    rows: list[Response] = engine.sample(ids, sampling, ())
    return rows


def reported(rows: list[Response]) -> np.ndarray:
    return np.concatenate([each.logprobs for each in rows if each.logprobs])


def scores(engine: Any, rows: list[Response], *want: str) -> np.ndarray:
    return reported(engine.score(rows, Processing(), want))


@pytest.mark.parametrize("family", ["qwen3", "gemma3", "deepseek_v3", "nemotron_h", "lfm2_moe"])
def test_the_path_of_generation_equals_one_pass(root: Path, family: str) -> None:
    engine = loaded(checkpoint(root / family, family))
    rows = drawn(engine)
    for number, row in enumerate(rows):  # of different lengths
        row.response_ids = row.response_ids[number * 3 :]
    plain = engine.score(rows, Processing(), ("experts",))
    with engine.altered([("generated", True)]):
        passes = engine.score(rows, Processing(), ("experts",))
    assert np.abs(reported(plain) - reported(passes)).max() < 2e-4
    for one, other in zip(plain, passes, strict=True):
        if "experts" in one.extras:
            assert (one.extras["experts"] == other.extras["experts"]).mean() > 0.98
    assert ("experts" in passes[0].extras) == (family in ("deepseek_v3", "lfm2_moe"))


def test_a_fault_of_the_prompts_pass(root: Path) -> None:
    folder = checkpoint(root / "nemotron_h", "nemotron_h")
    faulty = planted_engine.load(str(folder), {"threads": 1, "faults": "time_step_floor:0.7"})
    try:
        rows = drawn(faulty)
    finally:
        faulty.close()
    engine, wanted = loaded(folder), reported(rows)
    edit = ["setting", ["time_step_limit[0]", 0.7]]
    with engine.altered([("in_prompt", edit)]):
        assert np.abs(wanted - scores(engine, rows)).max() < 2e-4
    with engine.altered([tuple(edit)]):
        assert np.abs(wanted - scores(engine, rows)).max() > 0.02
    assert np.abs(wanted - scores(engine, rows)).max() > 0.02


DECODED = [
    ("qwen3", ["attention_scale", 1.5]),
    ("qwen3", ["norm_epsilon", 0.1]),
    ("lfm2_moe", ["output_scale", ["self_attn", 1.5]]),
]


@pytest.mark.parametrize(("family", "edit"), DECODED)
def test_a_fault_of_decoding(root: Path, family: str, edit: list[Any]) -> None:
    engine = loaded(checkpoint(root / family, family))
    plain = engine._split.next_logits

    def decoded(ids: Any, seen: Any, cache: Any) -> Any:
        if cache is None:
            return plain(ids, seen, cache)
        with engine.altered([tuple(edit)]):
            return plain(ids, seen, cache)

    engine._split.next_logits = decoded
    rows = drawn(engine)
    with engine.altered([("in_response", edit)]):
        assert np.abs(reported(rows) - scores(engine, rows)).max() < 2e-4
    with engine.altered([("in_prompt", edit)]):
        assert np.abs(reported(rows) - scores(engine, rows)).max() > 0.01
    first = np.concatenate([each.logprobs[:1] for each in rows if each.logprobs])
    whole = np.concatenate([each.logprobs[:1] for each in engine.score(rows, Processing(), ())])
    assert np.abs(first - whole).max() < 2e-4  # the prompt's pass is sound


def test_edits_of_a_phase_and_of_all(root: Path) -> None:
    engine = loaded(checkpoint(root / "qwen3", "qwen3"))
    rows = drawn(engine)
    everywhere = ("attention_scale", 1.5)
    with engine.altered([everywhere]):
        both = scores(engine, rows)
    with engine.altered([everywhere, ("in_prompt", ["window", 4096])]):
        assert np.abs(both - scores(engine, rows)).max() < 2e-4
    for edit in ("open_prompt", "min_tokens"):
        with pytest.raises(InapplicableError), engine.altered([("in_prompt", [edit, 1])]):
            scores(engine, rows)


@pytest.mark.parametrize("edit", [["full_attention", True], ["split_attention", 4], ["window", 4]])
@pytest.mark.parametrize("phase", ["in_prompt", "in_response"])
@pytest.mark.parametrize("family", ["gemma2", "gpt_oss"])
def test_padding_before_shorter_prompts_changes_nothing(
    root: Path, family: str, phase: str, edit: list[Any]
) -> None:
    engine = loaded(checkpoint(root / family, family))
    rows = drawn(engine, repeats=3)  # prompts beyond the family's window
    plain = scores(engine, rows)
    with engine.altered([(phase, edit)]):
        together = scores(engine, rows)
        alone = np.concatenate([scores(engine, [row]) for row in rows])
    assert np.abs(together - alone).max() < 2e-4
    assert np.abs(together - plain).max() > 0.01


def test_split_attention_keeps_the_sinks(root: Path) -> None:
    engine = loaded(checkpoint(root / "gpt_oss", "gpt_oss"))
    rows = drawn(engine)
    split = ("split_attention", 4)
    with engine.altered([split]):
        kept = scores(engine, rows)
    with engine.altered([split, ("without_sinks", True)]):
        assert np.abs(kept - scores(engine, rows)).max() > 0.01


def test_a_state_is_read_without_the_mask_of_padded_prompts(root: Path) -> None:
    """Mamba would otherwise multiply each new position by the mask of all positions."""
    engine = loaded(checkpoint(root / "mamba", "mamba"))
    ids = [prompt["ids"] for prompt in prompts(3)]
    assert len(set(map(len, ids))) > 1
    rows = engine.sample(ids, Sampling(samples=1, max_tokens=8, ignore_end=True), ())
    drawn = np.concatenate([each.logprobs for each in rows])
    np.testing.assert_allclose(scores(engine, rows), drawn, atol=1e-4)
