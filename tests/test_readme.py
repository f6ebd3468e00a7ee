"""What README and docs quote of a command's output is what the command prints."""

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


@pytest.mark.parametrize(
    ("page", "example", "beginning"),
    [
        ("README.md", "check_trl_run.sh", "SICK "),
        ("docs/check.md", "check_trl_run.sh", "SICK "),
        ("docs/preflight.md", "preflight.sh", "1 critical "),
    ],
)
def test_the_quoted_report_is_the_beginning_of_what_the_example_prints(
    page: str, example: str, beginning: str
) -> None:
    printed = subprocess.run(
        ["/bin/bash", str(ROOT / "examples" / example)],
        capture_output=True, text=True, timeout=120, check=True,
        env={"PATH": "/usr/bin:/bin", "PYTHONPATH": str(ROOT)},
    ).stdout  # fmt: skip
    text = (ROOT / page).read_text(encoding="utf-8")
    quoted = next(block for block in text.split("```\n") if block.startswith(beginning))
    facts = re.compile(r" · \d+ s$", re.MULTILINE)  # the time that it took
    assert facts.sub("", printed).startswith(facts.sub("", quoted))


def test_the_single_causes_of_the_probe_are_those_of_its_table() -> None:
    """The first `N of M` in the column of first results counts the single causes of a set."""
    page = (ROOT / "docs" / "attribution.md").read_text(encoding="utf-8")
    rows = [line.split("|")[1:4] for line in page.splitlines() if line.startswith("| ")]
    named = planted = 0
    for faults, _, result in rows[rows_before(rows) :]:
        counted = re.match(r" (?:unchanged code: )?(\d+) of (\d+)", result)
        if counted and "natural draw" not in faults:
            named, planted = named + int(counted[1]), planted + int(counted[2])
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert f"mostly faults of new kinds | {named} of {planted} |" in readme


def rows_before(rows: list[list[str]]) -> int:
    """The number of rows before the table of sets."""
    return next(at for at, row in enumerate(rows) if row[0].strip() == "set")
