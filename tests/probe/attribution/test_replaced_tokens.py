"""Tokens that the sampler reads at some places of every prompt, and does not report."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from grpodoctor.probe.attribution.base import ExperimentResult
from grpodoctor.probe.attribution.causes.computation.what_if import _within_prompts
from grpodoctor.probe.attribution.causes.tokens.replaced_tokens import ReplacedTokens
from grpodoctor.probe.attribution.causes.tokens.tokens_by_prompt import TokensByPrompt
from grpodoctor.probe.attribution.edits import EditFamily
from tests.probe.attribution.one_cause import found_by


def found(root: Path, fault: str) -> ExperimentResult | None:
    return found_by(ReplacedTokens(), root, "llama", fault)


@pytest.mark.parametrize(
    ("fault", "details"),
    [
        ("date_inside:2,1", "token 40 at place 3"),
        pytest.param(
            "date_inside:2,2", "token 40 at place 3, token 41 at place 4", marks=pytest.mark.slow
        ),
    ],
)
def test_a_replaced_text_is_found_token_by_token(tmp_path: Path, fault: str, details: str) -> None:
    result = found(tmp_path, fault)
    assert result is not None
    assert result.details == (details,)
    assert result.after is not None
    assert result.after.gap < 1e-9


@pytest.mark.parametrize("fault", ["attention_scale:1.3"])
def test_a_fault_of_the_forward_pass_is_no_prompt(tmp_path: Path, fault: str) -> None:
    assert found(tmp_path, fault) is None


@pytest.mark.slow
def test_a_text_that_differs_by_prompt_is_found_for_each(tmp_path: Path) -> None:
    result = found_by(TokensByPrompt(), tmp_path, "llama", "prompt_nonce:3")
    assert result is not None
    assert result.details == ("place 4",)
    assert result.after is not None
    assert result.after.gap < 1e-9


@pytest.mark.slow
@pytest.mark.parametrize("fault", ["attention_scale:1.3", "prefix_restart:4"])
def test_no_choice_of_tokens_by_prompt_explains_another_fault(tmp_path: Path, fault: str) -> None:
    assert found_by(TokensByPrompt(), tmp_path, "llama", fault) is None


def test_positions_jump_within_prompts_only() -> None:
    """A place beyond all prompts costs a pass, and changes nothing."""
    variant = SimpleNamespace(tokens=SimpleNamespace(prompt_lengths_B=np.array([5, 9])))
    families = [
        EditFamily("position_jump", (4, 8, 16), "integer", attribute="1"),
        EditFamily("window", (4, 64), "integer"),
    ]
    kept = {family.name: family.values for family in _within_prompts(variant, families)}
    assert kept == {"position_jump": (4, 8), "window": (4, 64)}
    assert not _within_prompts(variant, [EditFamily("position_jump", (16,), "integer")])
