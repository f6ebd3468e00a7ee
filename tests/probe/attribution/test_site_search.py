"""Generic edits of modules: how they are searched, and what they are called."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import numpy as np
import pytest
import torch

from grpodoctor.errors import EngineError
from grpodoctor.probe.attribution.causes.computation.what_if import WhatIf
from grpodoctor.probe.attribution.edit_causes.computed_causes import cause_of
from grpodoctor.probe.attribution.edits import Edit, EditFamily
from grpodoctor.probe.attribution.experiments import Experiments
from grpodoctor.probe.attribution.search import site_search
from grpodoctor.probe.attribution.search.edit_search import has_phases
from grpodoctor.probe.attribution.search.edit_trials import Trial
from grpodoctor.probe.attribution.search.site_search import SiteSearch
from grpodoctor.probe.attribution.wording.edit_words import described
from tests.probe.attribution.one_cause import found_by

SITE = "self_attn.k_proj/out"
TRUE = [0.5, 1.6, 0.8]


class Learner:
    """Log-probabilities that depend on a factor per layer, and not linearly."""

    def __init__(self) -> None:
        self.effects_LN = np.random.default_rng(0).normal(size=(3, 400)) / 2
        self.passes = 0
        self.tries_generic = True

    def scores(self, factors: list[float]) -> np.ndarray:
        moved = (np.log(np.maximum(factors, 1e-3))[:, None] * self.effects_LN).sum(0)
        return -2.0 + np.tanh(moved)

    def score_edits(self, _setup: Any, edits: Any, _folder: Any) -> list[np.ndarray]:
        self.passes += len(edits)
        return [self.scores(json.loads(one[-1][1])[1]) for one in edits]

    def is_loud(self, gap: float) -> bool:
        return gap > 1e-8


def search_of(learner: Learner) -> SiteSearch:
    """A search without its engine."""
    search = object.__new__(SiteSearch)
    search.experiments = learner  # type: ignore[assignment]
    search.variant = SimpleNamespace(setup=SimpleNamespace(edits=()))  # type: ignore[assignment]
    search._folder = None
    search._base, search._target = learner.scores([1.0, 1.0, 1.0]), learner.scores(TRUE)
    search._gap = lambda one: float(np.mean((one - search._target) ** 2))  # type: ignore[method-assign]
    return search


def test_factors_of_layers_are_fitted_together() -> None:
    learner = Learner()
    (trial,) = search_of(learner)._of_layers(
        [EditFamily("site_scales", ([1.0, 1.0, 1.0],), "choice", None, SITE)]
    )
    assert trial.best == TRUE  # also rounded
    assert trial.best_gap < 1e-8
    assert learner.passes < 60


def test_the_block_that_has_most_in_common_comes_first() -> None:
    trials = [
        Trial(EditFamily("layer_scale", (), "number", 1.0, "1.mlp"), merit=0.2),
        Trial(EditFamily("output_scale", (), "number", 1.0, "self_attn"), merit=0.4),
        Trial(EditFamily("window", (), "integer"), merit=0.9),
    ]
    assert SiteSearch._nearest_blocks(trials) == {"self_attn"}


@pytest.mark.parametrize(
    ("edit", "cause", "words"),
    [
        (("site_scale", [SITE, 0.5]), "attention-scale",
         "the output of self_attn.k_proj of every layer times 0.5"),
        (("site_scales", [SITE, TRUE]), "attention-scale",
         "the output of self_attn.k_proj of every layer times 0.5, 1.6, 0.8 by layer"),
        (("site_scale", ["1:mlp.down_proj/in", 2.0]), "residual-scale",
         "the input of mlp.down_proj of layer 1 times 2"),
        (("site_scale", ["^model.decoder.embed_positions/out", 0.0]), "position-embedding",
         "the output of model.decoder.embed_positions times 0"),
        (("site_change", ["mlp.act_fn/out", "of tanh"]), "activation",
         "the output of mlp.act_fn of every layer changed: of tanh"),
        (("site_change", ["mixer.A_log/weight", "exponential"]), "stored-convention",
         "mixer.A_log of every layer changed: exponential"),
        (("site_change", ["mlp.up_proj.weight/weight", "mxfp4"]), "quantisation",
         "mlp.up_proj.weight of every layer changed: mxfp4"),
        (("site_change", ["mlp.experts.*/weight", "mxfp4"]), "quantisation",
         "all weights in mlp.experts of every layer changed: mxfp4"),
        (("site_bound", ["self_attn.q_proj/out", 1.0]), "activation-limit",
         "the output of self_attn.q_proj of every layer within ±1"),
        (("site_bound", ["/out", 2.0]), "activation-limit", "the output of every layer within ±2"),
        (("site_bound", ["1:/out", 2.0]), "activation-limit", "the output of layer 1 within ±2"),
        (("site_change", ["^model.norm/out", "again"]), "norm-twice",
         "the output of model.norm changed: again"),
        (("site_change", ["conv.conv.weight/weight", "reversed"]), "conv-taps",
         "conv.conv.weight of every layer changed: reversed"),
        (("mask_border", "self"), "mask-border", "the mask's border moved (self)"),
        (("expert_sum", ["*", "last"]), "expert-accumulation",
         "only the output of each token's last expert"),
        (("operation", ["mlp#0:mul", "later gelu of 0"]), "activation-order",
         "gelu applied after mul in mlp of every layer, not before it"),
        (("operation", ["2:attn#22:scaled_dot_product_attention", "operands 1,2 before"]),
         "kv-layer", "operands 1 and 2 of scaled_dot_product_attention in attn of layer 2 taken "
         "from the layer before"),
        (("operation", ["attn#22:scaled_dot_product_attention", "operands 0 before"]),
         "operand-source", "operands 0 of scaled_dot_product_attention in attn of every layer "
         "taken from the layer before"),
        (("operation", ["norm_2#4:rsqrt", "from norm_1#4:rsqrt"]), "norm-statistics",
         "the output of rsqrt in norm_2 of every layer replaced by the output of rsqrt in norm_1 "
         "of every layer"),
        (("operation", ["norm_2#7:mul", "from layer"]), "operand-source",
         "the output of mul in norm_2 of every layer replaced by what the layer reads"),
        (("operation", ["attn#21:add", "twice rotation of attn.k_proj from attn#3:transpose"]),
         "rope-twice", "the steps from attn.k_proj to add in attn of every layer applied twice"),
        (("operation", ["mlp#1:sigmoid", "skipped"]), "missing-activation",
         "sigmoid in mlp of every layer left out"),
        (("operation", ["#0:add", "skipped"]), "missing-operation",
         "add in every layer left out"),
        (("operation", ["mixer#13:split", "exchanged 1,2"]), "tensor-order",
         "outputs 1 and 2 of split in mixer of every layer exchanged"),
        (("operation", ["attn#32:reshape", "axes"]), "tensor-order",
         "reshape in attn of every layer with its axes in the other order"),
        (("norm_place", ["*", "before"]), "norm-placement",
         "every norm applied before its block"),
        (("residual_from", ["self_attn", "normed"]), "residual-source",
         "the residual around self_attn taken after its norm"),
        (("row_order", ["embeddings", "4/4 reversed"]), "embedding-order",
         "part 4 of 4 of the rows of the embeddings in another order (reversed)"),
        (("function_name", ["activation", None]), "activation",
         "activation without a function"),
    ],
)  # fmt: skip
def test_edits_have_names_and_words(edit: tuple[str, Any], cause: str, words: str) -> None:
    whole: Edit = (edit[0], json.dumps(edit[1]))
    assert cause_of(whole).id == cause
    assert described(whole) == words
    assert "{" not in cause_of(whole).title.format(side="sampler")


def test_of_generic_edits_those_outside_of_layers_have_phases() -> None:
    outside = EditFamily("site_scale", (0.0,), "number", 1.0, "^model.embed_positions/out")
    within = EditFamily("site_scale", (0.0,), "number", 1.0, SITE)
    assert has_phases(outside)
    assert not has_phases(within)
    assert has_phases(EditFamily("window", (4,), "integer"))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("family", "fault", "name"),
    [
        ("exaone4", "norm_before_block", "norm-placement"),
        ("qwen2", "key_scales:0.5,1.6,0.8", "attention-scale"),
        ("ernie4_5", "rows_reversed:48,64", "embedding-order"),
    ],
)
def test_a_fault_of_no_known_kind_is_named(
    tmp_path: Path, family: str, fault: str, name: str
) -> None:
    result = found_by(WhatIf(), tmp_path, family, fault)
    assert result is not None
    assert result.identity is not None
    assert result.identity.id == name
    assert result.after is not None
    assert result.after.gap < 1e-5


@pytest.mark.slow
def test_a_gap_that_only_an_operation_explains_is_closed_within_few_passes(tmp_path: Path) -> None:
    passes: list[int] = []
    score = Experiments.score_edits

    def counted(self: Experiments, setup: Any, edits: Any, rollouts: Any = None) -> Any:
        passes.append(len(edits))
        return score(self, setup, edits, rollouts)

    with mock.patch.object(Experiments, "score_edits", counted):
        result = found_by(WhatIf(), tmp_path, "gemma", "activation_on_product")
    assert result is not None
    assert result.identity is not None
    assert result.identity.id == "activation-order"
    assert result.after is not None
    assert result.after.gap < 1e-8
    assert sum(passes) < 900


@pytest.mark.slow
def test_a_learner_without_memory_for_gradients_tries_its_sites_by_passes(tmp_path: Path) -> None:
    full = torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")
    with mock.patch.object(torch.autograd, "grad", side_effect=full) as called:
        result = found_by(WhatIf(), tmp_path, "glm", "residual_clamped:2")
    assert called.called
    assert result is not None
    assert result.identity is not None
    assert result.identity.id == "activation-limit"
    assert result.after is not None
    assert result.after.gap < 1e-6


def test_a_refused_estimate_falls_back_to_passes() -> None:
    search = search_of(Learner())
    search.experiments.generic_searches = set()
    families = [EditFamily("site_scale", (0.5,), "number", 1.0, SITE)]
    refused = EngineError("the device is out of memory", remedy="lower batch_tokens")
    with (
        mock.patch.object(SiteSearch, "_estimates", side_effect=refused),
        mock.patch.object(SiteSearch, "_by_passes", return_value=[]) as by_passes,
        mock.patch.object(site_search, "PairSearch") as pairs,
    ):
        pairs.return_value.best.return_value = None
        assert search._generic([], families, 1.0) == []
    by_passes.assert_called_once_with([], families)
    assert search._left > 500


@pytest.mark.slow
def test_two_changes_are_found_by_the_sum_of_their_effects(tmp_path: Path) -> None:
    """Neither an operation nor a temperature alone removes half of the gap."""
    result = found_by(WhatIf(), tmp_path, "qwen2_moe", "shared_gate_linear+hidden_temperature:1.15")
    assert result is not None
    assert result.after is not None
    assert result.after.gap < 1e-6
    names = {part.identity.id for part in result.parts if part.identity is not None}
    assert names == {"missing-activation", "temperature"}
    assert result.after.setup.processing.temperature == pytest.approx(1.15, abs=1e-3)
