"""Logs with the rows of several runs."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

import pytest

from grpodoctor.errors import MixedRunsError
from grpodoctor.runs.reading.opening import open_run
from grpodoctor.runs.reading.read_options import ReadOptions
from grpodoctor.runs.reading.run_discovery import runs_in_log
from grpodoctor.vocabulary.values import scalar
from tests.cli.in_process import run

STEPS = range(40)


def row(step: int, slope: float, **columns: object) -> dict[str, object]:
    return {
        **columns,
        "step": step,
        "reward": 0.3 + slope * step + (step % 7) / 100,
        "loss": 0.02 * slope * step,
    }


def written(path: Path, rows: Iterable[dict[str, object]]) -> Path:
    path.write_text("".join(json.dumps(each) + "\n" for each in rows))
    return path


def in_blocks(column: str, *names: object) -> list[dict[str, object]]:
    slopes = (0.012, -0.007, 0.005)
    pairs = zip(names, slopes, strict=False)
    return [row(step, slope, **{column: name}) for name, slope in pairs for step in STEPS]


def interleaved(column: str, *names: object) -> list[dict[str, object]]:
    return sorted(in_blocks(column, *names), key=lambda each: int(str(each["step"])))


@pytest.mark.parametrize(
    "rows",
    [
        in_blocks("seed", 1, 2, 3),
        in_blocks("run_name", "grpo", "dapo"),
        interleaved("run_id", "a", "b"),
        interleaved("variant", "base", "std off"),
    ],
    ids=["seeds", "names", "interleaved ids", "variants"],
)
def test_each_run_of_a_log_has_its_own_verdict(
    rows: list[dict[str, object]], tmp_path: Path
) -> None:
    path = written(tmp_path / "all.jsonl", rows)
    with pytest.raises(MixedRunsError, match="several runs"):
        list(open_run(path).steps)
    done = run("check", path, "--json")
    reports = json.loads(done.stdout)["runs"]
    names = [each for one in runs_in_log(path, print) for each in one.values()]
    assert len(names) == len(reports) > 1
    assert all(any(each["run"]["path"].endswith(f"={name})") for each in reports) for name in names)
    assert {each["run"]["steps"] for each in reports} == {len(STEPS)}
    kinds = {each["run"]["path"].rpartition("=")[2].strip(")"): each["verdict"]["kind"]
             for each in reports}  # fmt: skip
    assert kinds[names[0]] == "healthy"
    assert kinds[names[1]] == "sick"  # its reward falls


def test_a_csv_table_of_two_seeds_is_two_runs(tmp_path: Path) -> None:
    lines = ["seed,step,reward,loss"]
    lines += [f"{r['seed']},{r['step']},{r['reward']},{r['loss']}" for r in in_blocks("seed", 7, 8)]
    path = tmp_path / "all.csv"
    path.write_text("\n".join(lines) + "\n")
    assert runs_in_log(path, print) == [{"seed": "7"}, {"seed": "8"}]
    assert len(list(open_run(path, ReadOptions(where={"seed": "8"})).steps)) == len(STEPS)


def test_one_run_is_chosen_by_its_column(tmp_path: Path) -> None:
    path = written(tmp_path / "all.jsonl", in_blocks("seed", 1, 2))
    steps = list(open_run(path, ReadOptions(where={"seed": "2"})).steps)
    assert [each.step for each in steps] == list(STEPS)
    assert scalar(steps[10].values["reward/mean"]) == pytest.approx(0.3 - 0.07 + 0.03)
    done = run("check", path, "--where", "seed=2")
    assert done.stdout.startswith("SICK")
    wrong = run("check", path, "--where", "seed")
    assert wrong.returncode == 2
    assert "COLUMN=VALUE" in wrong.stderr


def test_a_run_that_is_not_in_the_log_is_named_with_those_that_are(tmp_path: Path) -> None:
    path = written(tmp_path / "all.jsonl", in_blocks("seed", 1, 2))
    other = run("check", path, "--where", "seed=7").stderr
    assert other.startswith("error: no row of the log has these values (")
    assert "choose another run: seed is 1, 2" in other
    absent = run("check", path, "--where", "variant=a").stderr
    assert absent.startswith("error: the log has no column 'variant' (")
    assert "leave --where variant out" in absent


@pytest.mark.parametrize(
    "rows",
    [
        [row(step, 0.01, seed=1000 + step) for step in STEPS],
        [row(step, 0.01, seed=seed) for step in STEPS for seed in range(4)],
        [row(step, 0.01, run_id="first" if step < 20 else "resumed") for step in STEPS],
        [row(step, 0.01, variant="easy" if step < 25 else "hard") for step in STEPS],
        [row(step, 0.01, run=1) for step in STEPS],
    ],
    ids=["a seed per step", "seeds of episodes", "resumed", "curriculum", "one run"],
)
def test_columns_that_change_within_a_run_do_not_split_it(
    rows: list[dict[str, object]], tmp_path: Path
) -> None:
    path = written(tmp_path / "one.jsonl", rows)
    assert len(list(open_run(path).steps)) == len(STEPS)
    assert runs_in_log(path, print) == []


def test_a_resumed_job_with_a_new_name_may_repeat_steps(tmp_path: Path) -> None:
    first = [row(step, 0.01, run_id="first") for step in range(30)]
    path = written(
        tmp_path / "one.jsonl",
        [*first, *(row(step, 0.011, run_id="second") for step in range(20, 60))],
    )
    assert {each.step for each in open_run(path).steps} == set(range(60))
