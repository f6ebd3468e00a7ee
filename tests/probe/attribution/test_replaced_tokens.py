"""Tokens that the sampler reads at some places of every prompt, and does not report."""

from __future__ import annotations

from pathlib import Path

import pytest

from grpodoctor.probe.attribution.base import ExperimentResult
from grpodoctor.probe.attribution.causes.tokens.replaced_tokens import ReplacedTokens
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
