import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

os.environ.setdefault("HF_HUB_OFFLINE", "1")  # read once, when the hub's client is imported

from grpodoctor.preflight.catalogue import all_checks
from grpodoctor.preflight.context import ModelFiles, PreflightContext
from grpodoctor.preflight.inputs.prompt_rows import PromptRow
from grpodoctor.preflight.inputs.run_settings import RunSettings
from grpodoctor.preflight.results.check_results import CheckFinding, SkippedCheck
from grpodoctor.trainer.rewards.user_reward import UserReward


@pytest.fixture(scope="session")
def dense_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A trained dense model's directory; treat it as read-only."""
    from tests.probes.models import dense

    return dense(tmp_path_factory.mktemp("dense"))


Make = Callable[..., PreflightContext]


@pytest.fixture
def context_of() -> Make:
    """Builds a context from a model directory."""

    def build(model: Path, rows: list[PromptRow] | None = None, **more: Any) -> PreflightContext:
        more.setdefault("settings", RunSettings(max_tokens=32))
        return PreflightContext(files=ModelFiles.read(model), rows=tuple(rows or ROWS), **more)

    return build


ROWS = [PromptRow(f"line {index}", f"{index}+1=", answer=str(index + 1)) for index in range(10, 50)]


@pytest.fixture
def findings_of() -> Callable[[str, PreflightContext], list[CheckFinding]]:
    """The findings of a check; fails if it was skipped."""

    def examine(code: str, context: PreflightContext) -> list[CheckFinding]:
        (check,) = (each for each in all_checks() if each.code == code)
        outcome = check.examine(context)
        assert not isinstance(outcome, SkippedCheck), outcome
        return list(outcome)

    return examine


@pytest.fixture
def reward_of(tmp_path: Path) -> Iterator[Callable[..., UserReward]]:
    """Builds a reward from the source of a module."""
    rewards = []

    def build(source: str, name: str = "reward", seconds: float = 20.0) -> UserReward:
        path = tmp_path / f"rewards_{len(rewards)}.py"
        path.write_text(source, encoding="utf-8")
        rewards.append(
            UserReward(
                f"{path}:{name}",
                seconds=seconds,
                option="--reward",
                seconds_option="--reward-seconds",
            )
        )
        return rewards[-1]

    yield build
    for reward in rewards:
        reward.close()
