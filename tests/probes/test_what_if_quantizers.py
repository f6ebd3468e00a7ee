"""What-if edits of quantizers, rotary tables, bounded caches, replicas of experts, and streams."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parents[2] / "probes"))

from contract import InapplicableError
from hf.what_if.number_formats import hadamard

from tests.probe.plants import seventh_draw_relatives  # noqa: F401  # registers its faults
from tests.probe.plants.families import checkpoint
from tests.probe.plants.set_checks import mostly_slow
from tests.probes.test_what_if_layers import (
    loaded,
    offered_with_effect_of,
    responses,
    scores,
)

pytestmark = pytest.mark.usefixtures("without_planted_faults")
RELATIVES: tuple[tuple[str, str, tuple[str, Any]], ...] = (
    ("helium", "streaming:1,8", ("bounded_cache", ["1", 8])),
    ("glm", "streaming:8,10", ("bounded_cache", ["8", 10])),
    ("phi", "cosines_lost", ("rope_part", ["cosines", 0.0])),
    ("glm4", "sines_lost", ("rope_part", ["sines", 0.0])),
    ("mistral", "weights_saturated:240", ("weight_saturation", ["tensor", 240 / 448])),
    ("phi3", "rows_saturated:224", ("weight_saturation", ["row", 0.5])),
    ("qwen3", "kv_unscaled:1.6", ("cache_scale", ["unread", 1.6])),
    ("olmo2", "kv_read_scaled:0.6", ("cache_scale", ["unwritten", 0.6])),
    ("llama", "rotation_lost:16", ("input_rotation", ["down_proj", 16])),
    ("qwen2", "heads_unrotated:16", ("input_rotation", ["o_proj", 16])),
    ("mixtral", "expert_summed_twice:2", ("expert_scale", ["3/4", 2.0])),
    ("olmoe", "expert_summed_twice:0", ("expert_scale", ["1/4", 2.0])),
    ("llama", "stream_scaled:0.8,1.3,0.9", ("site_scales", ["/out", [0.8, 1.3, 0.9]])),
    ("olmo2", "stream_scaled:1.2,0.7,1", ("site_scales", ["/out", [1.2, 0.7, 1.0]])),
)
"""Family, fault, and the edit that equals it."""


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("quantizers")


@pytest.mark.parametrize(("family", "fault", "edit"), mostly_slow(RELATIVES, 2))
def test_an_edit_equals_the_fault_and_is_listed(
    root: Path, family: str, fault: str, edit: tuple[str, Any]
) -> None:
    name, (part, _) = edit
    offered = offered_with_effect_of(root / family, family, fault, edit)
    assert any(e["name"] == name and e["values"][0][0] == part for e in offered)


def test_a_rotation_is_its_own_inverse() -> None:
    for size in (16, 64):
        matrix = hadamard(size)
        torch.testing.assert_close(matrix @ matrix, torch.eye(size))


def test_what_a_model_lacks_is_refused(root: Path) -> None:
    engine = loaded(checkpoint(root / "llama", "llama"))
    rows = responses(engine)
    for edit in (("expert_scale", ["1/2", 2.0]), ("input_rotation", ["down_proj", 64])):
        with pytest.raises(InapplicableError), engine.altered([edit]):
            scores(engine, rows)
