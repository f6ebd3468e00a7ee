"""A probe of a mixture of experts replays the sampler's routing and reports the remaining gap."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from grpodoctor.probe import run
from grpodoctor.probe.inputs.plan import plan_from_options
from grpodoctor.probe.results.results import ProbeResult
from grpodoctor.probe.results.results_json import read_result
from grpodoctor.report import text as terminal
from grpodoctor.report.probe.view import view_of
from tests.probe.attribution.in_process import PROBES, InProcess
from tests.probes.models import dense, moe, texts, variant
from tests.probes.test_transformers import tiny_mixture

GATES = r"mlp\.gate\."
Probe = Callable[..., ProbeResult]


class Silent:
    """Ignores all progress."""

    def stage(self, what: str, done: int, total: int) -> None:
        pass

    def engine(self, progress: Any) -> None:
        pass

    def remark(self, text: str) -> None:
        pass


@pytest.fixture
def probe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Probe:
    """Measures a pair of transformers engines, without attribution."""
    monkeypatch.setattr(run, "EngineRunner", InProcess)
    prompts = tmp_path / "prompts.txt"
    prompts.write_text("".join(f"{text}\n" for text in texts(6)))

    def probed(
        model: Path,
        sampler: str = "",
        learner: str = "",
        *,
        by: str = "transformers:{}?",
        **more: Any,
    ) -> ProbeResult:
        specs = (f"{by.format(model)}threads=1&{each}" for each in (sampler, learner))
        sides = [[each.rstrip("&")] for each in specs]
        settings = {"attribution": False, "prompts": prompts, **more}
        plan = plan_from_options(*sides, sampling={"samples": 3, "max_tokens": (40,)}, **settings)
        return run.probe(plan, tmp_path / "out", Silent())

    return probed


@pytest.mark.slow
def test_the_cell_contains_the_gap_before_and_after(probe: Probe, tmp_path: Path) -> None:
    model = moe(tmp_path / "moe")
    mixed = variant(tmp_path / "mixed", model, perturb=1.0, only=GATES)
    found = probe(model, f"weights={mixed}&weights_only=gate")
    (cell,) = found.cells
    assert cell.comparison is not None
    assert cell.comparison.experts is not None
    replayed = cell.replayed
    assert replayed is not None
    assert replayed.tokens == cell.comparison.tokens
    assert (replayed.experts.coverage, replayed.experts.agreement) == (1.0, 1.0)
    assert cell.comparison.experts.agreement is not None
    assert cell.comparison.experts.agreement < 0.9
    # The noisy routers also weight the experts differently, so a part of the gap remains.
    assert 0 < replayed.kl_k3_after != replayed.kl_k3_before > 0
    assert 0 < replayed.prob_diff_after != replayed.prob_diff_before > 0
    assert read_result(tmp_path / "out" / "probe.json").cells[0].replayed == replayed
    text = " ".join(terminal.render(view_of(found)).split())
    assert "coverage 100.00%, agreement 100.00%)." in text


@pytest.mark.slow
def test_a_custom_program_returns_the_experts_of_its_model(probe: Probe, tmp_path: Path) -> None:
    own = f"program:{PROBES / 'engine_transformers.py'}?model={{}}&"
    (cell,) = probe(moe(tmp_path / "moe"), "dtype=bfloat16", by=own).cells
    assert cell.comparison is not None
    assert cell.comparison.experts is not None
    assert cell.replayed is not None


@pytest.mark.slow
def test_nothing_is_replayed_without_experts(probe: Probe, tmp_path: Path) -> None:
    assert probe(moe(tmp_path / "moe"), "dtype=bfloat16", experts=False).cells[0].replayed is None
    assert probe(dense(tmp_path / "dense"), "dtype=bfloat16").cells[0].replayed is None


def test_a_learner_without_replay_fails_no_pair(probe: Probe, tmp_path: Path) -> None:
    """The routers of DeepSeek-V3 do not use a softmax."""
    folder = tmp_path / "model"
    folder.mkdir()
    result = probe(tiny_mixture("deepseek_v3", folder), "dtype=bfloat16")
    (cell,) = result.cells
    assert cell.status == "done"
    assert cell.replayed is None
    (note,) = (each for each in result.notes if "did not replay" in each)
    assert "DeepseekV3TopkRouter" in note
