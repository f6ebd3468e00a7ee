import json
import re
from pathlib import Path

import pytest

from grpodoctor.errors import ConfigError
from grpodoctor.probe.gates import parse_limits
from grpodoctor.probe.results.results_json import read_result
from tests.probe.test_cli_probe import SMALL, pair, probe, spec


def test_equal_engines_are_exact_and_accepted(tmp_path: Path) -> None:
    done = pair(spec(), spec(), tmp_path, "--exact", "--accept", "k3=0.015")
    assert done.returncode == 0, done.stderr
    (line,) = done.stdout.splitlines()
    assert line.startswith("accepted: k3 0 (limit 0.015), program:")
    (cell,) = read_result(tmp_path / "probe.json").cells
    assert cell.comparison is not None
    assert cell.comparison.equal_tokens == cell.comparison.tokens
    exact = pair(spec(), spec(), tmp_path, "--exact")
    assert exact.returncode == 0
    count = f"{cell.comparison.tokens:,}"
    assert exact.stdout.startswith(f"exact: {count} of {count} log-probabilities are bitwise equal")


def test_a_gap_beyond_a_limit_is_rejected_in_one_line(tmp_path: Path) -> None:
    done = pair(spec(), spec(shift=0.05), tmp_path, "--accept", "k3=0.0001")
    assert done.returncode == 1
    (line,) = done.stdout.splitlines()
    assert line.startswith("rejected: k3 0.001")
    assert "responses of up to 8 tokens" in line
    cells = read_result(tmp_path / "probe.json").cells
    assert not any(cell.controls or cell.causes for cell in cells), "the line needs neither"
    asked = pair(spec(), spec(shift=0.05), tmp_path, "--accept", "k3=0.0001", "--attribution")
    assert asked.returncode == 1
    (cell,) = read_result(tmp_path / "probe.json").cells
    assert cell.controls
    assert cell.causes
    wide = pair(spec(), spec(shift=0.05), tmp_path, "--accept", "k3=0.1", "--fail-on", "info")
    assert wide.returncode == 0, "the limit replaces --fail-on"
    least = pair(spec(), spec(shift=0.05), tmp_path, "--accept", "pearson=1")
    assert least.returncode == 1, "a correlation is a lower limit"
    exact = pair(spec(), spec(shift=0.05), tmp_path, "--exact")
    assert exact.returncode == 1
    assert exact.stdout.startswith("not exact: 0 of ")


@pytest.mark.slow
def test_an_exact_pair_is_the_base_of_an_ablation(tmp_path: Path) -> None:
    engines = [spec(), spec(shift=0.001), spec(shift=0.02)]
    options = [word for engine in engines for word in ("--sampler", engine)]
    done = probe(*options, "--learner", spec(), *SMALL, output=tmp_path)
    text = done.stdout
    assert "1 is exact" in " ".join(text.split()), done.stderr
    table = text[text.index("Cost of each difference") :]
    assert table.index("sampler shift=0.001") < table.index("sampler shift=0.02")
    without = pair(spec(), spec(shift=0.02), tmp_path / "out")
    assert "Cost of each difference" not in without.stdout, "no pair is exact"


@pytest.mark.slow
def test_a_setting_that_the_sampler_does_not_apply_leaves_the_verdict_unsure(
    tmp_path: Path,
) -> None:
    """The program of these tests describes no processors."""
    settings = tmp_path / "sampling.json"
    settings.write_text('{"temperature": 1.0, "repetition_penalty": 1.3}')
    done = pair(spec(), spec(), tmp_path / "out", "--sampling-from", settings)
    assert done.returncode == 1, done.stderr
    first = done.stdout.splitlines()[0]
    assert first == "1 pair measured: 1 unsure (repetition_penalty 1.3 was not tried)"
    assert "UNSURE" in done.stdout
    options = ("--sampling-from", settings, "--accept", "k3=0.1")
    gate = pair(spec(), spec(), tmp_path / "out", *options)
    assert gate.returncode == 1
    assert gate.stdout.startswith("unsure: repetition_penalty 1.3 was not tried")
    settings.write_text('{"no_repeat_ngram_size": 3}')
    other = pair(spec(), spec(), tmp_path / "out", "--sampling-from", settings)
    assert other.returncode == 1
    assert "no_repeat_ngram_size 3 was not tried" in other.stdout.splitlines()[0]


def test_the_forecast_and_the_first_answer_come_first(tmp_path: Path) -> None:
    done = pair(spec(), spec(shift=0.02), tmp_path / "one", "--budget", "600")
    lines = done.stderr.splitlines()
    forecast = "forecast: 3 engine loads, at most 96 tokens to sample and 192 to score; limit 600 s"
    assert forecast in lines
    (first,) = [line for line in lines if line.startswith("first answer after ")]
    assert "k3 is 0.0002 nats per token" in first
    assert "Refining: controls follow" in first
    again = pair(spec(), spec(shift=0.02), tmp_path / "two")
    (line,) = [line for line in again.stderr.splitlines() if line.startswith("forecast: ")]
    assert re.match(r"forecast: about \d+ s \(as in earlier probes\): 3 engine loads", line)


def test_a_program_can_read_the_report_of_a_gate(tmp_path: Path) -> None:
    done = pair(spec(), spec(), tmp_path, "--accept", "k3=0.015", "--json")
    assert done.returncode == 0
    assert json.loads(done.stdout)["cells"][0]["status"] == "done"
    assert "accepted: k3 0" in done.stderr


def test_pairs_that_were_not_measured_cannot_be_accepted(tmp_path: Path) -> None:
    done = pair(spec(), spec(), tmp_path, "--accept", "k3=1", "--budget", "0.001")
    assert done.returncode == 2
    assert "accepted" not in done.stdout


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("k3", "invalid limit 'k3'"),
        ("k3=high", "invalid limit 'k3=high'"),
        ("k3=-1", "invalid limit 'k3=-1'"),
        ("k3=nan", "invalid limit 'k3=nan'"),
        ("kl=0.1", "there is no figure 'kl'"),
    ],
)
def test_limits_that_cannot_be_read(text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        parse_limits([text])


def test_an_invalid_limit_starts_no_engine(tmp_path: Path) -> None:
    done = pair(spec(), spec(), tmp_path / "out", "--accept", "k4=1")
    assert done.returncode == 2
    assert "there is no figure 'k4'" in done.stderr
    assert not (tmp_path / "out").exists()
