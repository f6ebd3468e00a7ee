"""A preflight ends with results or with the documented error, whatever the table holds."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fuzz.odd_tables import main, outcome_of


@pytest.mark.parametrize("seed", range(12))
def test_odd_tables_are_examined_or_refused(seed: int, tmp_path: Path) -> None:
    assert "\n" not in outcome_of(seed, tmp_path)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_no_check_raises_on_hundreds_of_tables() -> None:
    assert main(["--count", "300", "--seed", "100"]) == 0
