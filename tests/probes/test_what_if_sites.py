"""Generic what-if edits of modules, and of the connections of blocks; each equals a fault."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "probes"))

from contract import InapplicableError, Sampling
from hf.what_if import sites, wiring

from tests.probe.plants import planted_engine
from tests.probe.plants.families import checkpoint, prompts
from tests.probe.plants.set_checks import mostly_slow
from tests.probes.test_what_if_layers import compared, loaded, responses, scores

pytestmark = pytest.mark.usefixtures("without_planted_faults")

Edits = list[tuple[str, Any]]
SCORED: list[tuple[str, str, Edits]] = [
    ("exaone4", "norm_before_block", [("norm_place", ["*", "before"])]),
    ("arcee", "residual_after_norm", [("residual_from", ["self_attn", "normed"])]),
    ("ernie4_5", "rows_reversed:48,64", [("row_order", ["embeddings", "4/4 reversed"])]),
    ("mamba", "conv_activation_lost", [("function_name", ["activation", None])]),
    ("olmoe", "experts_mxfp4", [("site_change", ["mlp.experts.*/weight", "mxfp4"])]),
    ("seed_oss", "row_bias_twice:2", [("bias_scale", ["o_proj", 2.0])]),
    (
        "qwen2", "key_scales:0.5,1.6,0.8",
        [("site_scales", ["self_attn.k_proj/out", [0.5, 1.6, 0.8]])],
    ),
]  # fmt: skip
"""Faults of scoring."""


@pytest.fixture(scope="session")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("sites")


@pytest.mark.parametrize(
    ("family", "fault", "edits"),
    mostly_slow(SCORED, 2),
)
def test_edits_equal_a_fault_written_without_them(
    root: Path, family: str, fault: str, edits: Edits
) -> None:
    folder = checkpoint(root / family, family)
    engine = loaded(folder)
    rows = responses(engine)
    for row in rows:
        row.prompt_ids[4], row.prompt_ids[2] = 57, 60
    plain, edited, wanted = compared(engine, rows, edits, folder, fault)
    assert np.abs(wanted - plain).max() > 0.02
    assert np.abs(wanted - edited).max() < 2e-4
    listed = [[e["name"], value] for e in engine.what_ifs() for value in e["values"]]
    for edit in edits:
        assert edit[0] == "site_scales" or list(edit) in listed
    assert np.array_equal(scores(engine, rows), plain)


def test_positions_that_only_prompts_have_equal_a_factor_in_one_phase(root: Path) -> None:

    folder = checkpoint(root / "opt", "opt")
    faulty = planted_engine.load(str(folder), {"threads": 1, "faults": "decode_unpositioned"})
    ids = [prompt["ids"] for prompt in prompts(4)]
    drawn = faulty.sample(ids, Sampling(samples=1, max_tokens=16), ())
    faulty.close()
    engine = loaded(folder)
    (site,) = (s for s in sites.scaled(engine._model) if s.endswith("embed_positions/out"))
    with engine.altered([("in_response", ["site_scale", [site, 0.0]])]):
        edited = scores(engine, drawn)
    wanted = np.concatenate([each.logprobs for each in drawn])
    assert np.abs(scores(engine, drawn) - wanted).max() > 0.02
    assert np.abs(edited - wanted).max() < 2e-4


@pytest.mark.parametrize(
    "family",
    ["gemma2", *(pytest.param(name, marks=pytest.mark.slow) for name in ("olmoe", "persimmon"))],
)
def test_generic_edits_are_undone_and_most_of_them_act(root: Path, family: str) -> None:
    engine = loaded(checkpoint(root / family, family))
    rows = responses(engine, 1)
    before = scores(engine, rows)
    wanted = ("site_", "norm_place", "residual_from", "row_order", "function_name")
    listed = [
        (entry["name"], value)
        for entry in engine.what_ifs()
        if entry["name"].startswith(wanted)
        for value in entry["values"][:: 7 if entry["name"] == "site_change" else 2]
    ][::3]
    effects = 0
    for edit in listed:
        try:
            with engine.altered([edit]):
                effects += not np.array_equal(scores(engine, rows), before)
        except InapplicableError:
            pass
    assert np.array_equal(scores(engine, rows), before)
    assert effects > len(listed) / 2


def test_a_cap_without_its_factor_equals_a_learner_with_the_fault(root: Path) -> None:
    folder = checkpoint(root / "vaultgemma", "vaultgemma")
    plain, edited, wanted = compared(
        engine := loaded(folder), responses(engine), [("logit_cap_product", 30.0)], folder,
        "cap_formula",
    )  # fmt: skip
    assert np.abs(wanted - plain).max() > 0.02
    assert np.abs(wanted - edited).max() < 2e-4


def test_the_connections_of_a_layer_with_four_norms_are_found(root: Path) -> None:
    engine = loaded(checkpoint(root / "gemma2", "gemma2"))
    found = {(each.norm, each.block, each.place) for each in wiring._links(engine._model)}
    assert found == {
        ("input_layernorm", "self_attn", "before"),
        ("post_attention_layernorm", "self_attn", "after"),
        ("pre_feedforward_layernorm", "mlp", "before"),
        ("post_feedforward_layernorm", "mlp", "after"),
    }
