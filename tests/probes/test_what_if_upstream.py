"""What-if edits of a ninth set of faults; each equals an independent one."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "probes"))

from contract import InapplicableError, Response, Sampling
from hf.what_if.processors import KEPT, LOST, ProcessorEdits

from tests.probe.plants import planted_engine
from tests.probe.plants.families import adapter, checkpoint, prompts
from tests.probe.plants.set_checks import mostly_slow
from tests.probes.test_what_if_layers import compared, loaded, responses, scores

pytestmark = pytest.mark.usefixtures("without_planted_faults")

Edits = list[tuple[str, Any]]
ONE, OTHER = "post_self_attn_layernorm", "post_attention_layernorm"
SCORED: list[tuple[str, str, Edits]] = [
    ("mamba2", "skip_lost", [("parameter_scale", ["D", 0.0])]),
    ("minimax_m3", "swiglu_limit:10000", [("setting", ["swiglu_limit", 1e9])]),
    ("zaya", "embedding_rows_lost:56,64", [("embedding_end", 56)]),
    ("gpt_neo", "local_normaliser:2", [("vocabulary_shards", 2)]),
    ("flint", "token_masked:7", [("masked_tokens", [7])]),
    (
        "kolibri1", f"norms_exchanged:{ONE},{OTHER}",
        [("weights_from", [f"*.{OTHER}", f"swap {ONE}"])],
    ),
    ("deepseek_v4", "sinkhorn:1", [("setting", ["hc_sinkhorn_iters", 1])]),
    ("axk1", "interleave_off", [("setting", ["rope_interleave", False])]),
    (
        "qwen3_5", "activation_fp8",
        [("linear_rounding", "fp8/row")],
    ),
]  # fmt: skip
"""Faults of scoring."""
DRAWN: list[tuple[str, str, Edits]] = [
    ("minimax_m3", "separator_lost:5", [("prompt_tokens", [[5, LOST]])]),
    ("jetmoe", "cache_hole", [("cache_hole", 1)]),
    ("axk1", "penalty_stale:1.3", [("part_repetition", ["prompt", 1.3])]),
    ("lfm3", "prefix_without_adapter:FOLDER", [("in_prefix", ["adapter", 0.0])]),
    ("axk1", "presence_all:0.5", [("part_presence", ["both", 0.5])]),
]
"""Faults of generation."""
UNLISTED = ("masked_tokens", "prompt_tokens", "in_prefix")
"""Edits whose values attribution finds in the data."""


@pytest.fixture(scope="session")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("upstream")


@pytest.mark.parametrize(("family", "fault", "edits"), mostly_slow(SCORED, 2))
def test_edits_equal_a_fault_written_without_them(
    root: Path, family: str, fault: str, edits: Edits
) -> None:
    folder = checkpoint(root / family, family)
    engine = loaded(folder)
    rows = responses(engine)
    for row in rows:
        row.prompt_ids[4], row.prompt_ids[2] = 7, 60
    plain, edited, wanted = compared(engine, rows, edits, folder, fault)
    assert np.abs(wanted - plain).max() > 0.02
    assert np.abs(wanted - edited).max() < 2e-4
    _check_listed(engine, edits)
    assert np.array_equal(scores(engine, rows), plain)


@pytest.mark.parametrize(("family", "fault", "edits"), mostly_slow(DRAWN, 2))
def test_edits_equal_a_fault_of_generation(
    root: Path, family: str, fault: str, edits: Edits
) -> None:
    folder = checkpoint(root / family, family)
    options: dict[str, str] = {}
    if "FOLDER" in fault:
        options["adapter"] = str(root / "adapter")
        adapter(root / "adapter", folder, alpha=4)
    faults = fault.replace("FOLDER", options.get("adapter", ""))
    faulty = planted_engine.load(str(folder), {"threads": 1, "faults": faults, **options})
    ids = [prompt["ids"] for prompt in prompts(4)]
    drawn: list[Response] = faulty.sample(ids, Sampling(samples=1, max_tokens=16), ())
    faulty.close()
    engine = loaded(folder, **options)
    with engine.altered(edits):
        edited = scores(engine, drawn)
    wanted = np.concatenate([each.logprobs for each in drawn])
    assert np.abs(scores(engine, drawn) - wanted).max() > 0.02
    assert np.abs(edited - wanted).max() < 2e-4
    _check_listed(engine, edits)


def _check_listed(engine: Any, edits: Edits) -> None:
    listed = [[e["name"], value] for e in engine.what_ifs() for value in e["values"]]
    near = {name for name, _ in edits if name == "part_repetition"}  # its number is refined
    for edit in edits:
        assert edit[0] in UNLISTED or edit[0] in near or list(edit) in listed


def test_shards_need_the_tokens(root: Path) -> None:
    """A sampler's logits have no token yet."""
    import torch
    from hf.what_if.processors import History, ProcessorEdits

    nothing = torch.zeros(2, 8)
    history = History(nothing, nothing, torch.zeros(2, dtype=torch.long))
    with pytest.raises(InapplicableError):
        ProcessorEdits(vocabulary_shards=2).processed(nothing, history, ())


def test_an_edit_that_a_family_rejects_with_an_error_of_its_own_does_not_fit(root: Path) -> None:
    """Configurations of some families validate their fields, and raise an error of the hub."""
    engine = loaded(checkpoint(root / "modernbert", "modernbert"))
    rows = responses(engine, 1)
    before = scores(engine, rows)
    with pytest.raises(InapplicableError), engine.altered([("rope_type", "yarn/2")]):
        scores(engine, rows)
    assert np.array_equal(scores(engine, rows), before)


def test_a_prompt_can_be_read_with_fewer_tokens_or_with_more() -> None:
    response = Response([7, 8, 9], [3], None, 0, 0, True)
    edits = ProcessorEdits(prompt_tokens=[[0, [5, KEPT]], [1, LOST], [-1, [KEPT, KEPT]]])
    assert edits.read([response])[0].prompt_ids == [5, 7, 9, 9]
    with pytest.raises(InapplicableError, match="without tokens"):
        ProcessorEdits(prompt_tokens=[[place, LOST] for place in range(3)]).read([response])
