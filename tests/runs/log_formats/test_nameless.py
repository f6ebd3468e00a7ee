"""Logs whose name does not show their format: standard input, or documents saved as text."""

from pathlib import Path

import pytest

from grpodoctor.runs.log_formats.registry import log_format_of
from tests.runs.log_formats.sound_logs import LINES, SOUND

BY_CONTENT = sorted(set(SOUND) - {"mlflow", "tensorboard"})
"""A folder shows the first; the second begins with its version, which the example leaves out."""


def detected(path: Path, content: bytes) -> str | None:
    path.write_bytes(content)
    found = log_format_of(path)
    return found.name if found else None


@pytest.mark.parametrize("name", BY_CONTENT)
def test_the_content_shows_the_format(name: str, tmp_path: Path) -> None:
    assert detected(tmp_path / "stream", SOUND[name]) == name
    if name != "parquet":
        assert detected(tmp_path / "saved.txt", SOUND[name]) == name


@pytest.mark.parametrize(
    ("content", "name"),
    [
        ('[2026-11-01, 10:00:00] step, 1\n{"history": 1}\n[2026-11-01, 10:01] a, 2\n', "console"),
        ("[INFO] step: 1, reward: 0.5\n" * 3, "console"),
        ("{'loss': 0.1, 'step': 3, 'reward': 1}\n" * 3, "console"),
        ("Loading, please, wait\nLoaded, in, 3 s\n", "console"),
        ("step,reward\n1,2\n", "console"),
        (f'{LINES[0]}\n{{"metrics": []}}\n', "jsonl"),
        ("name,kind,place\nstep 1,reward 2,x\n", "console"),
        ("", "console"),
        ("\n\n", "console"),
    ],
)
def test_lines_of_text_stay_lines(content: str, name: str, tmp_path: Path) -> None:
    assert detected(tmp_path / "stream.log", content.encode()) == name
