"""Tables: spreadsheets, exports, half-written rows."""

from __future__ import annotations

from pathlib import Path

import pytest

from grpodoctor.errors import RunError
from grpodoctor.frameworks.row_keys import RowKeys
from grpodoctor.runs.log_formats.base import LogRow
from grpodoctor.runs.log_formats.csv import CommaSeparated
from grpodoctor.runs.reading.opening import open_run
from grpodoctor.runs.reading.read_options import ReadOptions
from grpodoctor.runs.reading.run_discovery import runs_in_log
from grpodoctor.vocabulary.values import scalar


def carrier_of(text: str, directory: Path) -> CommaSeparated:
    path = directory / "metrics.csv"
    path.write_text(text, encoding="utf-8")
    return CommaSeparated(path, RowKeys())


def rows_of(text: str, directory: Path) -> list[LogRow]:
    """The rows of a table that does not grow any more."""
    carrier = carrier_of(text, directory)
    return [*carrier.read().records, *carrier.read_end().records]


@pytest.mark.parametrize("delimiter", [",", "\t", ";"])
def test_a_table_with_any_delimiter(delimiter: str, tmp_path: Path) -> None:
    lines = ["step,reward,note", "0,0.5,warm up", "1,,late"]
    rows = rows_of("\n".join(lines).replace(",", delimiter), tmp_path)
    assert [(row.step, dict(row.values)) for row in rows] == [(0, {"reward": 0.5}), (1, {})]
    assert rows[1].texts["note"] == "late"


def test_an_episode_is_a_step_where_nothing_else_is(tmp_path: Path) -> None:
    assert [row.step for row in rows_of("episode,reward\n5,0.1\n10,0.2\n", tmp_path)] == [5, 10]
    assert [row.step for row in rows_of("episode,step\n5,1\n10,2\n", tmp_path)] == [1, 2]


def test_byte_order_mark_comments_and_quotes(tmp_path: Path) -> None:
    rows = rows_of('\ufeff"step","loss, smoothed"\r\n1,"0.25"\r\n', tmp_path)
    assert rows[0].values == {"loss, smoothed": 0.25}
    assert rows_of("# run 7\nstep,loss\n1,0.5\n", tmp_path)[0].values == {"loss": 0.5}


def test_a_chart_that_was_exported_from_wandb(tmp_path: Path) -> None:
    text = (
        '"Step","run-1 - train/reward","run-1 - train/reward__MIN","run-1 - train/reward__MAX",'
        '"run-2 - train/reward"\n'
        '"10","0.5","0.5","0.5","0.9"\n'
    )
    first, second = rows_of(text, tmp_path)
    assert (first.step, first.texts["run"], dict(first.values)) == (
        10,
        "run-1",
        {"train/reward": 0.5},
    )
    assert (second.texts["run"], dict(second.values)) == ("run-2", {"train/reward": 0.9})
    (row,) = rows_of("Step,run-1 - train/reward\n10,0.5\n", tmp_path)
    assert "run" not in row.texts, "one run needs no choice"


def test_a_table_of_more_runs_than_are_read_says_so(tmp_path: Path) -> None:
    names = [f"run{number}" for number in range(130)]
    lines = ['"Step",' + ",".join(f'"{name} - reward"' for name in names)]
    lines += [f"{step}," + ",".join(["0.5"] * len(names)) for step in range(6)]
    path = tmp_path / "export.csv"
    path.write_text("\n".join(lines) + "\n")
    notes: list[str] = []
    assert len(runs_in_log(path, notes.append)) == 128
    (note,) = notes
    assert "has 130 runs; the first 128 are read" in note


def test_a_list_of_runs_is_no_run(tmp_path: Path) -> None:
    """W&B exports its table of runs as well: one row per run with its settings and last values."""
    path = tmp_path / "export.csv"
    path.write_text(
        '"Name","State","every_n_steps","accuracy"\n'
        + "".join(f'"run {run}","finished","0.1","0.{run + 10}"\n' for run in range(30)),
        encoding="utf-8",
    )
    with pytest.raises(RunError, match="one row for each run") as raised:
        open_run(path)
    assert "history of one run" in str(raised.value)
    history = path.read_text(encoding="utf-8").replace("every_n_steps", "Step")
    path.write_text(history, encoding="utf-8")
    assert list(open_run(path).steps)


def test_a_run_that_has_ended_has_no_rows(tmp_path: Path) -> None:
    text = "Step,one - reward,two - reward\n1,0.5,0.9\n2,,0.8\n"
    assert [row.texts["run"] for row in rows_of(text, tmp_path)] == ["one", "two", "two"]


def test_a_repeated_header_is_skipped_and_a_torn_row_is_damage(tmp_path: Path) -> None:
    chunk = carrier_of("step,loss\n1,0.5\nstep,loss\n2,0.4\n3\n4,0.3\n", tmp_path).read()
    assert [row.step for row in chunk.records] == [1, 2, 4]
    assert [(each.line, each.why) for each in chunk.damage] == [
        (5, "1 fields, but the header has 2")
    ]


def test_a_growing_table_is_read_once(tmp_path: Path) -> None:
    reader = carrier_of("step,loss\n1,0.5\n2,0.", tmp_path)
    assert reader.read().records[0].step == 1
    with reader.path.open("a") as file:
        file.write("4\n3,0.3\n")
    assert reader.read().records[-1].step == 3
    reader.rewind()
    assert [row.step for row in reader.read().records] == [1, 2, 3]


def test_underscored_keys_are_the_frameworks_own(tmp_path: Path) -> None:
    """A table cannot have slashes in the names of its columns, where its tool forbids it."""
    carrier_of(
        "step,actor_entropy,actor_pg_loss,critic_score_mean,response_length_mean,timing_s_gen\n"
        "1,0.3,0.01,0.5,512,9.5\n2,0.29,0.01,0.51,510,9.4\n",
        tmp_path,
    )
    run = open_run(tmp_path / "metrics.csv")
    first, _ = run.steps
    assert run.manifest.framework == "verl"
    found = {name: scalar(reading) for name, reading in first.values.items()}
    assert found["entropy/mean"] == 0.3
    assert found["reward/mean"] == 0.5
    assert found["time/rollout"] == 9.5


def test_underscored_components_of_a_reward(tmp_path: Path) -> None:
    carrier_of(
        "step,reward,reward_std,completions_mean_length,rewards_my_func_mean,frac_reward_zero_std\n"
        "1,0.5,0.1,100,0.25,0.1\n",
        tmp_path,
    )
    run = open_run(tmp_path / "metrics.csv")
    (step,) = run.steps
    assert run.manifest.framework == "trl"
    assert scalar(step.values["reward/component/my_func/mean"]) == 0.25
    assert scalar(step.values["length/mean"]) == 100


def test_a_mapped_key_is_matched_as_written(tmp_path: Path) -> None:
    carrier_of(
        "step,actor_entropy,actor_pg_loss,critic_score_mean,my_acc\n1,0.3,0.01,0.5,0.75\n", tmp_path
    )
    own = {"actor_entropy": "entropy/correct", "my_acc": "accuracy/train"}
    (step,) = open_run(tmp_path / "metrics.csv", ReadOptions(mapping=own)).steps
    assert scalar(step.values["entropy/correct"]) == 0.3
    assert scalar(step.values["accuracy/train"]) == 0.75
    assert "entropy/mean" not in step.values


def test_unknown_keys_are_read_by_the_users_map_alone(tmp_path: Path) -> None:
    carrier_of("n,my_reward\n1,0.5\n2,0.25\n", tmp_path)
    run = open_run(tmp_path / "metrics.csv", ReadOptions(mapping={"my_reward": "reward/mean"}))
    assert [scalar(step.values["reward/mean"]) for step in run.steps] == [0.5, 0.25]
    assert run.manifest.framework == "generic"
    with pytest.raises(RunError, match="no known framework logs these keys: my_reward, n"):
        open_run(tmp_path / "metrics.csv", ReadOptions(mapping={"another": "reward/mean"}))


def test_a_scalar_that_tensorboard_exported_is_named(tmp_path: Path) -> None:
    """The page writes one curve per file and leaves its name out."""
    path = tmp_path / "run.csv"
    rows = "".join(f"{1772994845.5 + step},{step},{0.1 * step}\n" for step in range(30))
    path.write_text(f"Wall time,Step,Value\n{rows}")
    with pytest.raises(RunError, match=r"exported one scalar without its name.*tfevents"):
        open_run(path)


@pytest.mark.parametrize(
    ("columns", "runs"),
    [
        (("reward_a", "reward_b"), ["a", "b"]),
        (("grpo_mean_reward", "grpo_kl", "ppo_mean_reward", "ppo_kl"), ["grpo", "ppo"]),
        (("baseline/reward", "treated/reward", "lr"), ["baseline", "treated"]),
        (("seed0/train/reward", "seed1/train/reward"), ["seed0", "seed1"]),
        (("reward_format", "reward_accuracy", "reward"), []),  # components
        (("reward_1", "reward_2", "reward"), []),
        (("reward_min", "reward_max", "reward"), []),
        (("train/reward", "eval/reward"), []),
        (("ppo_kl", "grpo_loss", "reward"), []),  # of one run
        (("loss_a", "loss_b", "reward"), []),
    ],
)
def test_runs_in_columns_of_their_own(
    columns: tuple[str, ...], runs: list[str], tmp_path: Path
) -> None:
    path = tmp_path / "log.csv"
    lines = [",".join(map(str, (step, *range(len(columns))))) for step in range(1, 31)]
    path.write_text("\n".join([",".join(("step", *columns)), *lines]) + "\n")
    rows = CommaSeparated(path, RowKeys()).read().records
    assert list(dict.fromkeys(row.texts["run"] for row in rows if "run" in row.texts)) == runs
    assert len(rows) == 30 * max(len(runs), 1)
    if not runs:
        assert rows[0].values == {name: place for place, name in enumerate(columns)}
        return
    steps = list(open_run(path, ReadOptions(where={"run": runs[1]})).steps)
    own = [place for place, name in enumerate(columns) if runs[1] in name and "reward" in name]
    assert {scalar(step.values["reward/mean"]) for step in steps} == set(own)


def test_decimal_commas_are_read_where_they_separate_no_columns(tmp_path: Path) -> None:
    rows = rows_of("step;reward;entropy\n0;0,25;1,5e-2\n1;0,5;0,25\n", tmp_path)
    assert [row.values for row in rows] == [
        {"reward": 0.25, "entropy": 0.015},
        {"reward": 0.5, "entropy": 0.25},
    ]
    mixed = rows_of("step;reward;name\n0;0.25;1,5\n", tmp_path)
    assert mixed[0].values == {"reward": 0.25}


def test_a_comma_before_three_digits_shows_no_decimal_mark_by_itself(tmp_path: Path) -> None:
    thousands = rows_of("step\ttokens\treward\n0\t1,234\t1\n1\t2,345\t0.5\n", tmp_path)
    assert [row.values.get("tokens") for row in thousands] == [None, None]
    decimals = rows_of("step;reward;tokens\n0;0,5;1,234\n1;0,25;2,345\n", tmp_path)
    assert [row.values["tokens"] for row in decimals] == [1.234, 2.345]


CELL = '"first line\nsecond ""line"", with a comma\n\nlast"'


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_a_quoted_cell_may_have_line_breaks(end: str, tmp_path: Path) -> None:
    lines = ["step,sample,reward", *(f"{step},{CELL},0.{step}" for step in range(1, 4))]
    text = "".join(line + "\n" for line in lines).replace("\n", end)
    rows = rows_of(text, tmp_path)
    assert [(row.step, row.values["reward"]) for row in rows] == [(1, 0.1), (2, 0.2), (3, 0.3)]


@pytest.mark.parametrize("idle_polls", [0, 1, 3])
def test_a_row_that_is_written_in_parts_is_read_once_and_whole(
    idle_polls: int, tmp_path: Path
) -> None:
    """Also if the writer pauses within a cell, and the file is looked at meanwhile."""
    text = f"step,sample,reward\n1,{CELL},0.25\n2,{CELL},0.5\n"
    path = tmp_path / "metrics.csv"
    path.touch()
    carrier = CommaSeparated(path, RowKeys())
    found = []
    for character in text:
        with path.open("a") as file:
            file.write(character)
        for _ in range(1 + idle_polls):
            chunk = carrier.read()
            assert (chunk.damage, chunk.notes) == ([], [])
            found += chunk.records
    assert [(row.step, row.values["reward"]) for row in found] == [(1, 0.25), (2, 0.5)]


@pytest.mark.parametrize(
    ("last", "steps"),
    [("3,0.5,plain", [1, 2, 3]), (f"3,0.5,{CELL}", [1, 2, 3]), ('3,0.5,"half', [1, 2]),
     ("3,0.5", [1, 2])],
)  # fmt: skip
def test_a_last_row_without_a_line_end(last: str, steps: list[int], tmp_path: Path) -> None:
    text = f"step,reward,sample\n1,0.5,{CELL}\n2,0.5,x\n{last}"
    assert [row.step for row in rows_of(text, tmp_path)] == steps


@pytest.mark.parametrize("steps", [5, 200_000])
def test_a_quote_that_does_not_close_costs_its_row_alone(steps: int, tmp_path: Path) -> None:
    lines = ["step,sample,reward", '1,"open,0.5', *(f"{at},x,0.5" for at in range(2, steps))]
    carrier = carrier_of("\n".join([*lines, ""]), tmp_path)
    chunks = [carrier.read() for _ in range(steps // 100 + 4)]
    chunks.append(carrier.read_end())
    assert sum(len(chunk.records) for chunk in chunks) == steps - 2
    assert chunks[-1].notes == [
        'a quoted cell does not close (1,"open,0.5); 1 line left out: '
        "correct the quotes of this row"
    ]


def test_check_reads_what_waits_for_the_end_of_a_log(tmp_path: Path) -> None:
    path = tmp_path / "metrics.csv"
    path.write_text(f"step,sample,reward\n1,{CELL},0.25\n2,x,0.5\n3,x,0.75")
    assert [step.step for step in open_run(path).steps] == [1, 2, 3]
    path.write_text('step,sample,reward\n1,"open,0.25\n2,x,0.5\n3,x,0.75\n')
    assert [step.step for step in open_run(path).steps] == [2, 3]
