"""`check --suggest-map` on logs with keys that no table has."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import pytest

from grpodoctor.cli.suggest_map import print_suggestions
from grpodoctor.errors import ConfigError, RunError
from grpodoctor.runs.reading.opening import open_run
from grpodoctor.runs.reading.read_options import ReadOptions

EXPECTED = {
    "AvgEpisodeReturn": "reward/mean",
    "policyEntropyNats": "entropy/mean",
    "numTokensPerCompletionAvg": "length/mean",
    "gradNormL2": "optimizer/grad_norm",
    "overlongFrac": "length/truncated_rate",
    "evalSuccess": "accuracy/heldout",
}


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A log of which no key is known, in the working directory."""
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "metrics.jsonl"
    rows = [
        {"step": step, "AvgEpisodeReturn": 0.2 + step / 100, "policyEntropyNats": 1 - step / 100,
         "numTokensPerCompletionAvg": 200.0 + step, "gradNormL2": 1.5, "overlongFrac": 0.1,
         "evalSuccess": 0.5, "trainSuccessPct": 40.0, "wombat": 1.0, "my_magic": 3.0,
         "clippedFrac": 0.0}
        for step in range(40)
    ]  # fmt: skip
    path.write_text("\n".join(map(json.dumps, rows)))
    return path


def written() -> dict[str, str]:
    return tomllib.loads(Path("grpodoctor.toml").read_text())["map"]


def test_suggestions_are_printed_with_their_statistics_and_written(
    log: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    print_suggestions(log, ReadOptions(), None)
    printed = capsys.readouterr().out
    assert written() == EXPECTED
    assert "40 values, 0.2 → 0.59" in printed
    assert "trainSuccessPct: its values leave the range of accuracy/train (0 to 1)" in printed
    assert "clippedFrac: it is zero in every row" in printed
    assert "Without a suggestion: my_magic, wombat" in printed


def test_the_written_mapping_makes_the_log_readable(log: Path) -> None:
    with pytest.raises(RunError, match="--suggest-map"):
        open_run(log)
    print_suggestions(log, ReadOptions(), None)
    steps = list(open_run(log, ReadOptions(mapping=written())).steps)
    assert len(steps) == 40
    assert set(EXPECTED.values()) <= set(steps[0].values)


def test_a_settings_file_keeps_what_it_has(log: Path) -> None:
    before = '# ours\nselect = ["ENT"]\n\n[map]\n"gradNormL2" = "optimizer/loss"\n\n[x]\ny = 1\n'
    Path("grpodoctor.toml").write_text(before)
    print_suggestions(log, ReadOptions(), None)
    content = tomllib.loads(Path("grpodoctor.toml").read_text())
    assert content["map"] == {**EXPECTED, "gradNormL2": "optimizer/loss"}
    assert (content["select"], content["x"]) == (["ENT"], {"y": 1})
    assert Path("grpodoctor.toml").read_text().startswith("# ours\n")
    print_suggestions(log, ReadOptions(), None)
    assert tomllib.loads(Path("grpodoctor.toml").read_text()) == content


def test_pyproject_gets_its_own_table(log: Path) -> None:
    print_suggestions(log, ReadOptions(), Path("pyproject.toml"))
    content = tomllib.loads(Path("pyproject.toml").read_text())
    assert content["tool"]["grpodoctor"]["map"] == EXPECTED


def test_an_invalid_settings_file_is_not_touched(log: Path) -> None:
    Path("grpodoctor.toml").write_text("[map\n")
    with pytest.raises(ConfigError, match="invalid TOML"):
        print_suggestions(log, ReadOptions(), None)
    assert Path("grpodoctor.toml").read_text() == "[map\n"


def test_a_key_of_a_known_framework_is_not_suggested(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "metrics.jsonl"
    row = {"loss": 0.1, "reward": 0.5, "reward_std": 0.2, "completions/mean_length": 9.5, "kl": 0.1}
    path.write_text("\n".join(json.dumps({"step": step, **row}) for step in range(30)))
    print_suggestions(path, ReadOptions(), None)
    assert "5 keys already have a metric" in capsys.readouterr().out
    assert not Path("grpodoctor.toml").exists()


def test_no_log_is_one_clear_error(tmp_path: Path) -> None:
    (tmp_path / "empty.txt").write_text("nothing\n")
    with pytest.raises(RunError, match="no readable log"):
        print_suggestions(tmp_path / "empty.txt", ReadOptions(), None)
