"""The private names of TRL, pinned: a new version breaks this test before it breaks a user."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from grpodoctor.hooks.trl import private_names

pytestmark = pytest.mark.filterwarnings("ignore")


def test_the_installed_version_is_verified() -> None:
    assert private_names.is_verified(private_names.installed_version())


def test_all_names_are_there(make_trainer: Callable[..., Any]) -> None:
    trainer = make_trainer()
    assert private_names.unknown_names(trainer) == []
    assert private_names.head_temperature(trainer) == 1.0
    assert private_names.generates_next(trainer)
    assert private_names.training_metrics(trainer) == {}
    seen: list[Any] = []
    original = trainer._generate_and_score_completions
    trainer._generate_and_score_completions = lambda rows: seen.append(original(rows)) or seen[-1]
    trainer.args.max_steps = 1
    trainer.train()
    optional = {"old_per_token_logps", "sampling_per_token_logps", "ref_per_token_logps",
                "importance_sampling_ratio", "tool_mask"}  # fmt: skip
    assert set(private_names.BATCH_KEYS) - optional <= set(seen[0])


@pytest.mark.parametrize(
    ("version", "verified"), [("1.16.0", True), ("1.16.3", True), ("1.17.0", False), ("", False)]
)
def test_versions(version: str, verified: bool) -> None:
    assert private_names.is_verified(version) == verified
