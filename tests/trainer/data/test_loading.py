import json
import random
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from grpodoctor.errors import ConfigError, DataError
from grpodoctor.measure.final_answer import final_answer
from grpodoctor.trainer.config.sections import TaskConfig
from grpodoctor.trainer.data.loading import FileTask, build_task, read_problems

ROWS = [{"prompt": f"{index}+1=", "answer": str(index + 1)} for index in range(30)]


def write_lines(path: Path, rows: list[dict[str, object]]) -> Path:
    path.write_text("\n".join(json.dumps(row) for row in rows) + "\n\n")
    return path


def test_lines_and_parquet_read_alike(tmp_path: Path) -> None:
    lines = read_problems(write_lines(tmp_path / "a.jsonl", ROWS))
    pq.write_table(pa.Table.from_pylist(ROWS), tmp_path / "a.parquet")
    table = read_problems(tmp_path / "a.parquet")
    assert [(each.prompt, each.answer) for each in lines] == [
        (each.prompt, each.answer) for each in table
    ]
    assert len(lines) == 30


def test_numbers_are_answers_and_ids_are_kept(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "a.jsonl", [{"id": 7, "prompt": "p", "answer": 3, "x": None}])
    (problem,) = read_problems(path)
    assert (problem.id, problem.answer) == ("7", "3")


def test_every_epoch_shows_every_row_once_in_its_own_order(tmp_path: Path) -> None:
    task = FileTask(write_lines(tmp_path / "a.jsonl", ROWS))
    rng = random.Random(0)
    first, second = (tuple(e.prompt for e in task.problems(rng, 27)) for _ in range(2))
    assert set(first) == set(second)
    assert len(set(first)) == 27
    assert first != second


def test_the_order_follows_the_seed_and_continues_after_a_restore(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "a.jsonl", ROWS)
    whole = FileTask(path).problems(random.Random(3), 70)
    task = FileTask(path)
    begun = task.problems(random.Random(3), 33)
    resumed = FileTask(path)
    resumed.restore(json.loads(json.dumps(task.state())))
    assert begun + resumed.problems(random.Random(99), 37) == whole
    assert FileTask(path).problems(random.Random(4), 70) != whole


def test_the_last_tenth_is_held_out(tmp_path: Path) -> None:
    task = FileTask(write_lines(tmp_path / "a.jsonl", ROWS))
    heldout = {each.prompt for each in task.heldout(100)}
    assert heldout == {row["prompt"] for row in ROWS[27:]}
    assert not heldout & {each.prompt for each in task.problems(random.Random(0), 27)}


def test_a_heldout_file_is_used_for_evaluation(tmp_path: Path) -> None:
    data = write_lines(tmp_path / "a.jsonl", ROWS[:20])
    heldout = write_lines(tmp_path / "b.jsonl", ROWS[20:])
    task = build_task(TaskConfig(data=str(data), heldout_data=str(heldout)))
    assert [each.prompt for each in task.heldout(3)] == [row["prompt"] for row in ROWS[20:23]]
    assert len({each.prompt for each in task.problems(random.Random(0), 20)}) == 20


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b'{"prompt": "a", "answer": "b"}\n{"prompt": \n', "not JSON.*line 2"),
        (b"[1, 2]\n", "not a JSON object.*line 1"),
        (b'{"prompt": "a"}\n', "'answer' is missing.*line 1"),
        (b'{"answer": "a"}\n', "'prompt' is missing.*line 1"),
        (b'{"prompt": 3, "answer": "b"}\n', "prompt is not text.*line 1"),
        (b'{"prompt": " ", "answer": "b"}\n', "prompt is not text"),
        (b'{"prompt": "a", "answer": ["b"]}\n', "neither text nor a number"),
        (b'{"prompt": "a", "answer": null}\n', "neither text nor a number"),
        (b"", "no rows"),
        (b"\n \n", "no rows"),
        (b"\xff\xfe\x00", "not JSON"),
        (b'{"prompt": "a", "answer": "b"}\n', "a single row cannot be split"),
    ],
)
def test_lines_that_cannot_be_used(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "bad.jsonl"
    path.write_bytes(content)
    with pytest.raises(DataError, match=message) as caught:
        build_task(TaskConfig(data=str(path)))
    assert "\n" not in str(caught.value)
    assert str(path) in str(caught.value)


def test_files_that_cannot_be_used(tmp_path: Path) -> None:
    (tmp_path / "bad.parquet").write_bytes(b"PAR1 not really")
    (tmp_path / "bad.csv").write_text("prompt,answer\n")
    pq.write_table(pa.table({"question": ["a"], "answer": ["b"]}), tmp_path / "columns.parquet")
    cases = {
        "nowhere.jsonl": "data file does not exist",
        "bad.parquet": "not a Parquet file",
        "bad.csv": "use .jsonl or .parquet",
        "columns.parquet": "'prompt' is missing",
        "": "data file does not exist",
    }
    for name, message in cases.items():
        with pytest.raises(DataError, match=message):
            read_problems(tmp_path / name)


def test_an_unknown_task_is_named_with_its_neighbour() -> None:
    with pytest.raises(ConfigError, match="did you mean arithmetic"):
        build_task(TaskConfig(name="aritmetic"))


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("so \\boxed{3} or rather \\boxed{ 42 }", "42"),
        ("They had 5.\n#### 72", "72"),
        ("*31#7", "7"),
        (" 12 ", "12"),
        ("", ""),
    ],
)
def test_final_answers(text: str, answer: str) -> None:
    assert final_answer(text) == answer


def test_answers_match_as_text_or_as_numbers(tmp_path: Path) -> None:
    answers = ("1,200", "0.5", "yes", "nan", "#### 3")
    rows = [{"prompt": f"p{place}", "answer": answer} for place, answer in enumerate(answers)]
    task = FileTask(write_lines(tmp_path / "a.jsonl", rows), tmp_path / "a.jsonl")
    problems = sorted(task.heldout(5), key=lambda each: each.id)
    rewards = task.score(problems, ["#1200.0", "\\boxed{.5}", "#no", "0", "#3"])
    assert rewards.correct == [True, True, False, False, True]
    assert rewards.total == [1.0, 1.0, 0.0, 0.0, 1.0]
    assert rewards.components == {"correct": rewards.total}


def test_a_byte_order_mark_is_accepted(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "a.jsonl", ROWS)
    plain = read_problems(path)
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
    assert read_problems(path) == plain
