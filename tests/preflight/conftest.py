import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

os.environ.setdefault("HF_HUB_OFFLINE", "1")  # read once, when the hub's client is imported

from grpodoctor.preflight.base import Remark, Skipped
from grpodoctor.preflight.catalogue import all_checks
from grpodoctor.preflight.context import (
    Patient,
    Plan,
    Row,
    load_tokenizer,
    read_settings,
)
from grpodoctor.preflight.judge import UserJudge


@pytest.fixture(scope="session")
def dense_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A trained dense model's directory; treat it as read-only."""
    from tests.probes.models import dense

    return dense(tmp_path_factory.mktemp("dense"))


Make = Callable[..., Patient]


@pytest.fixture
def patient_of() -> Make:
    """Builds what is examined from a model's directory."""

    def build(model: Path, rows: list[Row] | None = None, **more: Any) -> Patient:
        more.setdefault("plan", Plan(max_tokens=32))
        return Patient(
            model=model,
            rows=tuple(rows or ROWS),
            tokenizer=load_tokenizer(model),
            config=read_settings(model / "config.json"),
            generation=read_settings(model / "generation_config.json"),
            **more,
        )

    return build


ROWS = [Row(f"line {index}", f"{index}+1=", answer=str(index + 1)) for index in range(10, 50)]


@pytest.fixture
def remarks_of() -> Callable[[str, Patient], list[Remark]]:
    """What the check of a code has to say; an error if it was skipped."""

    def examine(code: str, patient: Patient) -> list[Remark]:
        (check,) = (each for each in all_checks() if each.code == code)
        outcome = check.examine(patient)
        assert not isinstance(outcome, Skipped), outcome
        return list(outcome)

    return examine


@pytest.fixture
def judge_of(tmp_path: Path) -> Iterator[Callable[..., UserJudge]]:
    """Builds a judge from the source of a module."""
    judges = []

    def build(source: str, name: str = "reward", seconds: float = 20.0) -> UserJudge:
        path = tmp_path / f"rewards_{len(judges)}.py"
        path.write_text(source, encoding="utf-8")
        judges.append(UserJudge(f"{path}:{name}", seconds))
        return judges[-1]

    yield build
    for judge in judges:
        judge.close()
