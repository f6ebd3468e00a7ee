"""What each page says about a run, drawn without a browser."""

from pathlib import Path

import pytest

from tests.app.page_script import drawn_until, page_test, text_of
from tests.report.simulated import record_run

FIXTURE = Path(__file__).parent.parent / "data" / "run"
TRL_LOG = Path(__file__).parent.parent / "data" / "logs" / "deltasthicc_trainer_state.json.gz"


@pytest.fixture(scope="module")
def sick(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return record_run(tmp_path_factory.mktemp("runs") / "sick", 80, sick_from=40)


def test_the_overview_begins_with_the_diagnosis(sick: Path) -> None:
    test = drawn_until(page_test("overview", sick), "MIS001")
    assert not test.exception
    assert not test.error
    assert "sick" in test.markdown[0].value
    assert test.code[0].value == "correction.kind=tis_token"


def test_the_overview_reads_a_log_of_another_framework() -> None:
    test = drawn_until(page_test("overview", TRL_LOG), "LEN002")
    assert not test.exception
    assert not test.error
    assert "max_completion_length" in text_of(test)


def test_the_table_lists_all_runs_with_their_verdicts(sick: Path) -> None:
    test = drawn_until(page_test("runs", sick, FIXTURE, TRL_LOG), "**3 runs**")
    assert not test.exception
    table = test.dataframe[0].value
    assert list(table["Verdict"]) == ["✖ sick"] * 3
    assert "MIS001 engine-mismatch" in set(table["Worst finding"])
