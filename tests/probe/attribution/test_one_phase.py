"""Faults that act only while tokens are generated, or only while prompts are read."""

from __future__ import annotations

from pathlib import Path

import pytest

from grpodoctor.probe.attribution.base import ExperimentResult
from grpodoctor.probe.attribution.causes.computation.phases import OnePhase
from grpodoctor.probe.attribution.edit_causes.computed_causes import cause_of
from grpodoctor.probe.attribution.edits import EditFamily, in_phase
from grpodoctor.probe.attribution.wording.edit_words import described
from tests.probe.attribution.one_cause import found_by


def found(root: Path, family: str, fault: str) -> ExperimentResult | None:
    return found_by(OnePhase(), root, family, fault)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("family", "fault", "name", "words"),
    [
        ("qwen3", "decode_scale:1.4", "attention-scale", "only while tokens are generated"),
        pytest.param(
            *("gemma2", "prefill_soft_cap", "attention-soft-cap", "only while the prompt is read"),
            marks=pytest.mark.slow,
        ),
    ],
)
def test_a_fault_of_one_phase_is_named(
    tmp_path: Path, family: str, fault: str, name: str, words: str
) -> None:
    result = found(tmp_path, family, fault)
    assert result is not None
    assert result.identity is not None
    assert result.identity.id == name
    assert result.details[0].endswith(words)
    assert result.after is not None
    assert result.after.gap < 1e-7


def test_a_fault_of_both_phases_is_none_of_one(tmp_path: Path) -> None:
    assert found(tmp_path, "llama", "rope_theta:500") is None


def test_edits_of_a_phase_have_the_causes_of_their_edits() -> None:
    inner = EditFamily("setting", (0.5,), "number", 1.0, "time_step_limit[0]")
    edit = in_phase("in_prompt", inner).edit(0.7)
    assert edit == ("in_prompt", '["setting", ["time_step_limit[0]", 0.7]]')
    assert cause_of(edit) == cause_of(inner.edit(0.7))
    assert described(edit) == "time_step_limit[0] 0.7, only while the prompt is read,"
