"""`check --suggest-map` on logs with keys that no table has."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import pytest

from grpodoctor.cli.suggest_map import MapTarget, print_suggestions
from grpodoctor.errors import ConfigError, RunError
from grpodoctor.runs.reading.key_words import pattern_of
from grpodoctor.runs.reading.map_suggestions import suggest_map
from grpodoctor.runs.reading.opening import open_run
from grpodoctor.runs.reading.read_options import ReadOptions
from tests.cli import in_process

WRITE = MapTarget(write=True)

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
    """A log without known keys, in the working directory."""
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
    print_suggestions(log, ReadOptions(), WRITE)
    printed = capsys.readouterr().out
    assert written() == EXPECTED
    assert "40 values, 0.2 → 0.59" in printed
    assert "trainSuccessPct: its values leave the range of accuracy/train (0 to 1)" in printed
    assert "clippedFrac: it is zero in every row" in printed
    assert "Without a suggestion: my_magic, wombat" in printed


def test_the_written_mapping_makes_the_log_readable(log: Path) -> None:
    with pytest.raises(RunError, match="--suggest-map"):
        open_run(log)
    print_suggestions(log, ReadOptions(), WRITE)
    steps = list(open_run(log, ReadOptions(mapping=written())).steps)
    assert len(steps) == 40
    assert set(EXPECTED.values()) <= set(steps[0].values)


def test_a_settings_file_keeps_what_it_has(log: Path) -> None:
    mapping = '[map]\n"gradNormL2" = "optimizer/loss"\n'
    before = f'# ours\nselect = ["ENT"]\n\n{mapping}\n[severities]\nLEN002 = "info"\n'
    Path("grpodoctor.toml").write_text(before)
    print_suggestions(log, ReadOptions(), WRITE)
    content = tomllib.loads(Path("grpodoctor.toml").read_text())
    assert content["map"] == {**EXPECTED, "gradNormL2": "optimizer/loss"}
    assert (content["select"], content["severities"]) == (["ENT"], {"LEN002": "info"})
    assert Path("grpodoctor.toml").read_text().startswith("# ours\n")
    print_suggestions(log, ReadOptions(), WRITE)
    assert tomllib.loads(Path("grpodoctor.toml").read_text()) == content


def test_pyproject_gets_its_own_table(log: Path) -> None:
    print_suggestions(log, ReadOptions(), MapTarget(Path("pyproject.toml"), write=True))
    content = tomllib.loads(Path("pyproject.toml").read_text())
    assert content["tool"]["grpodoctor"]["map"] == EXPECTED


def test_an_invalid_settings_file_is_not_touched(log: Path) -> None:
    Path("grpodoctor.toml").write_text("[map\n")
    with pytest.raises(ConfigError, match="invalid TOML"):
        print_suggestions(log, ReadOptions(), WRITE)
    assert Path("grpodoctor.toml").read_text() == "[map\n"


def test_a_key_of_a_known_framework_is_not_suggested(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "metrics.jsonl"
    row = {"loss": 0.1, "reward": 0.5, "reward_std": 0.2, "completions/mean_length": 9.5, "kl": 0.1}
    path.write_text("\n".join(json.dumps({"step": step, **row}) for step in range(30)))
    print_suggestions(path, ReadOptions(), WRITE)
    assert "5 keys already have a metric" in capsys.readouterr().out
    assert not Path("grpodoctor.toml").exists()


def test_nothing_is_written_unless_asked(log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    print_suggestions(log, ReadOptions(), MapTarget())
    printed = capsys.readouterr().out
    assert not Path("grpodoctor.toml").exists()
    header, toml = printed.split("To use them, ")[1].split("\n", 1)
    assert f"grpodoctor check {log} --write-map" in header
    assert tomllib.loads(toml)["map"] == EXPECTED


def test_the_printed_toml_is_for_the_file_in_use(
    log: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("pyproject.toml").write_text('[tool.grpodoctor]\nselect = ["ENT"]\n')
    done = in_process.run("check", log, "--suggest-map")
    assert "add this to " in done.stdout
    assert "pyproject.toml, or run" in done.stdout
    assert "[tool.grpodoctor.map]" in done.stdout
    assert Path("pyproject.toml").read_text() == '[tool.grpodoctor]\nselect = ["ENT"]\n'


def test_the_settings_that_check_reads_are_written_on_request(log: Path) -> None:
    assert in_process.run("check", log).returncode == 2
    done = in_process.run("check", log, "--write-map")
    assert (done.returncode, written()) == (0, EXPECTED)
    assert "grpodoctor check reads it" in done.stdout
    assert in_process.run("check", log, "--json").returncode == 0
    other = in_process.run("check", log, "--suggest-map", "--write-map", "--config", "new.toml")
    assert other.returncode == 0
    assert tomllib.loads(Path("new.toml").read_text())["map"] == EXPECTED


def test_ignored_settings_files_are_not_written(log: Path) -> None:
    before = "[nonsense]\nx = 1\n"
    Path("grpodoctor.toml").write_text(before)
    assert in_process.run("check", log, "--suggest-map", "--isolated").returncode == 0
    done = in_process.run("check", log, "--write-map", "--isolated")
    assert done.returncode == 2
    assert "--isolated ignores the settings file that --write-map writes" in done.stderr
    assert Path("grpodoctor.toml").read_text() == before


@pytest.mark.parametrize("before", ["[nonsense]\nx = 1\n", '[map]\nkey = "no/metric"\n'])
def test_a_file_that_check_refuses_is_not_written(log: Path, before: str) -> None:
    Path("grpodoctor.toml").write_text(before)
    with pytest.raises(ConfigError, match=r"unknown (setting|metric)"):
        print_suggestions(log, ReadOptions(), WRITE)
    assert Path("grpodoctor.toml").read_text() == before


@pytest.mark.parametrize(
    ("key", "reason"),
    [
        ("reward_std", "it may be the standard deviation of a group or of the batch"),
        ("my/rewardStdev", "it may be of a group"),
        ("approx_kl", "neither the other policy nor the sign is stated"),
        ("myPolicyKl", "neither the other policy nor the sign is stated"),
        ("someKld", "the other policy is not stated"),
    ],
)
def test_a_name_that_leaves_the_metric_open_is_not_suggested(
    tmp_path: Path, key: str, reason: str
) -> None:
    path = tmp_path / "metrics.jsonl"
    rows = [{"step": step, "reward": step / 40, key: 0.01 + step / 1000} for step in range(40)]
    path.write_text("\n".join(map(json.dumps, rows)))
    (suggestion,) = suggest_map(path, ReadOptions()).suggestions
    assert (suggestion.key, reason in suggestion.objection) == (key, True)


@pytest.mark.parametrize(
    ("key", "metric"),
    [
        ("my/klToBase", "kl/reference/k3"),
        ("my/batchRewardStd", "reward/std"),
        ("my/incorrectLen", "length/incorrect"),
        ("time/kl_vs_base", None),
        ("myTokens_per_turn", None),
        ("my/clipRatioMax", None),
        ("my/zeroStdCount", None),
    ],
)
def test_words_that_name_another_quantity_are_not_ignored(key: str, metric: str | None) -> None:
    pattern = pattern_of(key)
    assert (pattern and pattern.metric) == metric


def test_keys_that_are_read_together_or_hold_no_metric_are_known(tmp_path: Path) -> None:
    row = {
        "progress/batch": 1.0, "optim/lr": 1e-4, "env/all/reward/total": 0.5, "optim/entropy": 0.5,
        "env/all/ac_tokens_per_turn": 50.0, "env/all/turns_per_episode": 2.0,
        "env/all/total_ac_tokens": 500.0, "optim/kl_sample_train_v1": 0.01,
    }  # fmt: skip
    path = tmp_path / "metrics.jsonl"
    path.write_text("\n".join(json.dumps({"step": step, **row}) for step in range(30)))
    found = suggest_map(path, ReadOptions())
    assert found.known["env/all/ac_tokens_per_turn"] == "length/mean"
    assert "env/all/total_ac_tokens" in found.without_metric
    assert found.suggestions == ()


def test_no_log_is_one_clear_error(tmp_path: Path) -> None:
    (tmp_path / "empty.txt").write_text("nothing\n")
    with pytest.raises(RunError, match="no readable log"):
        print_suggestions(tmp_path / "empty.txt", ReadOptions(), WRITE)


@pytest.mark.parametrize(
    ("keys", "is_asked"),
    [
        (("mean", "min", "max"), True),
        (("avg", "std", "count"), True),
        (("mean", "count"), False),  # nothing shows a spread
        (("mean", "min", "max", "wombat"), False),
    ],
)
def test_keys_that_do_not_say_what_they_measure(
    keys: tuple[str, ...], is_asked: bool, tmp_path: Path
) -> None:
    """A public log of a collapse has only the keys `mean`, `min` and `max`."""
    path = tmp_path / "metrics.jsonl"
    rows = [{"step": step, **dict.fromkeys(keys, step / 40)} for step in range(40)]
    path.write_text("\n".join(map(json.dumps, rows)))
    with pytest.raises(RunError) as caught:
        open_run(path)
    assert (f"--map {keys[0]}=reward/mean" in str(caught.value)) is is_asked
    assert "--suggest-map" in str(caught.value)
    suggested = {each.key: each.metric for each in suggest_map(path, ReadOptions()).suggestions}
    assert (suggested.get(keys[0]) == "reward/mean") is is_asked
    steps = list(open_run(path, ReadOptions(mapping={keys[0]: "reward/mean"})).steps)
    assert len(steps) == 40


def of_console(tmp_path: Path, line: str) -> dict[str, str]:
    path = tmp_path / "train.log"
    path.write_text("".join(line.format(step=step) + "\n" for step in range(30)))
    found = suggest_map(path, ReadOptions())
    return {each.key: each.metric for each in found.suggestions if not each.objection}


def test_the_letters_of_a_console_line_are_offered(tmp_path: Path) -> None:
    letters = {"line/r": "reward/mean", "line/h": "entropy/mean"}
    line = "[iter {step:04d}] R=0.4{step} H=0.5{step} L=5{step} gnorm=0.3"
    assert of_console(tmp_path, line) == {**letters, "line/l": "length/mean"}
    assert (
        of_console(tmp_path, "[iter {step:04d}] R=0.4{step} H=0.5{step} L=0.0{step} gnorm=0.3")
        == letters
    )
    assert (
        of_console(tmp_path, "[iter {step:04d}] R=0.4{step} Q=0.5{step} L=5{step} gnorm=0.3") == {}
    )


def test_a_letter_of_an_evaluation_is_no_training_reward(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    rows = ({"step": step, "R": 0.4, "H": 0.5, "test/R": 0.3 + step / 99} for step in range(30))
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    offered = {each.key: each.metric for each in suggest_map(path, ReadOptions()).suggestions}
    assert offered["R"] == "reward/mean"
    assert offered.get("test/R") != "reward/mean"


def test_the_command_that_writes_repeats_the_options(log: Path) -> None:
    done = in_process.run("check", log, "--suggest-map", "--map", "wombat=reward/std")
    assert f"run `grpodoctor check {log} --map wombat=reward/std --write-map`" in done.stdout
