from __future__ import annotations

import json
import random
from pathlib import Path

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from grpodoctor.errors import RunError
from grpodoctor.frameworks.rollout_formats import jsonlines, parquet
from grpodoctor.frameworks.rollout_formats.base import DumpFormat
from grpodoctor.frameworks.rollout_formats.registry import (
    all_dump_formats,
    dump_format_of,
    dumps_among,
)
from grpodoctor.runs.reading.opening import open_run
from grpodoctor.runs.rollout_dumps import runners
from grpodoctor.runs.rollout_dumps.dump_reader import DumpReader
from grpodoctor.support.files.regular_files import files_below
from grpodoctor.vocabulary.values import scalar
from tests.runs.rollout_dumps.samples import STEPS, WRITERS, lines, trl, verl
from tests.samples import sampled


def read(files: list[tuple[DumpFormat, Path]]) -> tuple[dict[int, object], DumpReader]:
    reader = DumpReader(files, runner=runners.in_process)
    return dict(reader.steps()), reader


def of_verl(root: Path, data: bytes) -> tuple[dict[int, object], DumpReader]:
    path = root / "1.jsonl"
    path.write_bytes(data)
    form = next(each for each in all_dump_formats() if each.name == "verl rollouts")
    return read([(form, path)])


GOOD = b'{"input":"p","output":"a b c","gts":"","score":1.0,"step":1}\n'


@pytest.mark.parametrize(
    "bad",
    [
        b"{not json}\n",
        b"\xff\xfe\x00binary\x80\n",
        b"[" * 100_000 + b"\n",
        b'{"a":' * 5000 + b"\n",
        b'{"input":"p","output":"half\n',
        b"null\n",
        b'"text"\n',
    ],
    ids=["words", "binary", "brackets", "depth", "half", "null", "text"],
)
def test_invalid_responses_are_counted(tmp_path: Path, bad: bytes) -> None:
    steps, reader = of_verl(tmp_path, GOOD + bad + GOOD)
    assert list(steps) == [1]
    assert (reader.responses, reader.damaged) == (2, 1)
    assert reader.damage[0].why.startswith("not a JSON object at byte")


@pytest.mark.parametrize(
    "strange",
    [
        {"score": None},
        {"score": "high"},
        {"score": [1, 2]},
        {"score": {"a": 1}},
        {"score": 10**400},
        {"output": None},
        {"output": ["a", {"content": "b"}, 3]},
        {"input": {"content": [{"content": "deep"}]}},
        {"step": "many"},
        {"step": -5},
        {"step": 1e300},
        {"uid": 7},
        {"uid": ["x"]},
        {"x" * 5000: 1.0},
    ],
    ids=lambda each: str(each)[:30],
)
def test_unusable_values_are_missing(tmp_path: Path, strange: dict[str, object]) -> None:
    row = {**orjson.loads(GOOD), **strange}
    steps, reader = of_verl(tmp_path, GOOD + json.dumps(row).encode() + b"\n")
    assert reader.responses + reader.damaged == 2
    assert not reader.failed
    assert 1 in steps


def test_nonfinite_rewards_are_counted_separately(tmp_path: Path) -> None:
    steps, reader = of_verl(tmp_path, GOOD + GOOD.replace(b"1.0", b"NaN"))
    mean = steps[1]["reward/mean"]  # type: ignore[index]
    assert (mean.count, mean.nonfinite) == (1, 1)
    assert not reader.damaged


def test_lone_surrogates_do_no_harm(tmp_path: Path) -> None:
    steps, _ = of_verl(tmp_path, GOOD.replace(b"a b c", b"a \\ud800 c") + GOOD)
    assert scalar(steps[1]["reward/mean"]) == 1.0  # type: ignore[index]


@pytest.mark.parametrize(
    "damage",
    [
        b'{"input": [{}\n{}]}\n',
        b'{"input": "p"\n"output": "q"}\n',
        b'{"a": 1}, {"b": 2}\n[{}]\n',
    ],
)
def test_lines_that_are_json_only_together_are_damage(tmp_path: Path, damage: bytes) -> None:
    _, reader = of_verl(tmp_path, GOOD * 3 + damage + GOOD * 2)
    assert reader.responses == 5
    assert reader.damaged == damage.count(b"\n")


def test_an_oversized_line_is_skipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jsonlines, "LONGEST_LINE", 5000)
    monkeypatch.setattr(jsonlines, "BLOCK_BYTES", 1000)
    long = GOOD.replace(b"a b c", b"x" * 50_000)
    _, reader = of_verl(tmp_path, GOOD * 30 + long + GOOD * 30)
    assert reader.responses == 60
    assert reader.damaged == 1
    assert "a line of more than" in reader.damage[0].why


@pytest.mark.parametrize("name", sampled(WRITERS, 3))
@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data())
def test_no_damage_to_a_file_stops_the_reader(
    tmp_path: Path, name: str, data: st.DataObject
) -> None:
    root = tmp_path / "whole"
    if not root.exists():
        WRITERS[name](root)
    form, path = data.draw(st.sampled_from(dumps_among(files_below(root))))
    good = path.read_bytes()
    bad = damaged(good, data.draw(st.integers(0, 2**32)), data.draw(st.integers(0, 4)))
    broken = tmp_path / "broken" / path.relative_to(root)
    broken.parent.mkdir(parents=True, exist_ok=True)
    broken.write_bytes(bad)
    dump_format_of(broken)
    _, reader = read([(form, broken)])
    assert reader.responses <= 2000


def damaged(good: bytes, seed: int, kind: int) -> bytes:
    source = random.Random(seed)
    place = source.randrange(len(good))
    if kind == 0:
        return good[:place]
    if kind == 1:
        return good[:place] + source.randbytes(50) + good[place + 50 :]
    if kind == 2:
        return good[:place] + good[place + source.randrange(100) :]
    if kind == 3:
        return good[:place].replace(b"1", b'"\xff"', 3) + good[place:].replace(b":", b":[", 2)
    return source.randbytes(500) + good[:500]


json_values = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers(-(2**70), 2**70) | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4)
    ),
    max_leaves=8,
)


@pytest.mark.parametrize("name", WRITERS)
@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data())
def test_any_key_may_have_any_value(tmp_path: Path, name: str, data: st.DataObject) -> None:
    root = tmp_path / "whole"
    if not root.exists():
        WRITERS[name](root)
    form, path = dumps_among(files_below(root))[0]
    if path.suffix != ".jsonl":
        return
    rows = [orjson.loads(line) for line in path.read_bytes().splitlines()[:4]]
    for row in rows:
        for key in data.draw(st.sets(st.sampled_from(sorted(row)), max_size=4)):
            row[key] = data.draw(json_values)
    broken = tmp_path / path.name
    broken.write_text("".join(json.dumps(row) + "\n" for row in rows))
    _, reader = read([(form, broken)])
    assert not reader.failed, reader.failed


def test_empty_and_half_written_files_are_accepted(tmp_path: Path) -> None:
    trl(tmp_path)
    verl(tmp_path)
    files = dumps_among(files_below(tmp_path))
    (tmp_path / "rollouts/2.jsonl").write_bytes(b"")
    half = tmp_path / "completions/completions_00003.parquet"
    half.write_bytes(half.read_bytes()[:-20])
    steps, reader = read(files)
    assert list(steps) == list(STEPS)
    assert [each.split(":")[0] for each in reader.failed] == ["completions_00003.parquet"]


def test_a_decompression_bomb_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A Parquet file of 40 kB that decodes to 80 GB of text: one long answer, many times."""
    folder = tmp_path / "completions"
    folder.mkdir()
    count = 80_000
    indices = pa.array(np.zeros(count, np.int32))
    text = pa.DictionaryArray.from_arrays(indices, pa.array(["x" * 1_000_000]))
    columns = {
        "step": np.ones(count, np.int64),
        "prompt": ["p"] * count,
        "completion": text,
        "advantage": np.zeros(count),
    }
    path = folder / "completions_00001.parquet"
    pq.write_table(pa.table(columns), path, compression="zstd")
    assert path.stat().st_size < 200_000
    steps, reader = read(dumps_among([path]))
    assert not steps
    assert "bytes of text" in reader.failed[0]
    monkeypatch.setattr(parquet, "MOST_VALUES", 1000)
    _, reader = read(dumps_among([path]))
    assert "80000 entries" in reader.damage[0].why


def test_only_unreadable_dumps_are_not_a_run(tmp_path: Path) -> None:
    trl(tmp_path)
    for path in files_below(tmp_path):
        path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(RunError, match="no rollout dump could be read; completions_00001"):
        open_run(tmp_path)


def test_parquet_rows_without_storage_are_refused(tmp_path: Path) -> None:
    """Two million responses in a few kilobytes: each is small, and takes memory all the same."""
    folder = tmp_path / "completions"
    folder.mkdir()
    count = 2_000_000
    columns = {
        name: pa.DictionaryArray.from_arrays(pa.array(np.zeros(count, np.int8)), pa.array(["x"]))
        for name in ("prompt", "completion")
    }
    numbers = {"step": np.ones(count, np.int64), "advantage": np.zeros(count)}
    path = folder / "completions_00001.parquet"
    pq.write_table(pa.table({**numbers, **columns}), path, compression="zstd")
    steps, reader = read(dumps_among([path]))
    assert not steps
    assert "2000000 rows in" in reader.failed[0]


def test_a_metrics_log_is_not_a_dump(tmp_path: Path) -> None:
    lines(tmp_path / "metrics.jsonl", [{"step": 1, "env/all/reward/total": 0.5}])
    lines(tmp_path / "logging.jsonl", [{"loss": 1, "completions/mean_length": 3, "step": 1}])
    (tmp_path / "trainer_state.json").write_text('{"log_history": [{"step": 1}]}')
    assert dumps_among(files_below(tmp_path)) == []


SIGNALING_NAN = np.array([0x7FA00000], np.uint32).view(np.float32)
"""What a bit error makes of a log-probability: converting it raises a floating-point error."""


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("step", 1e300),
        ("step", -5.0),
        ("rank", 1e300),
        ("reward", SIGNALING_NAN[0]),
        ("token_ids", [1e300, 2.0]),
        ("token_ids", [float("nan"), 2.0]),
        ("learner_logprobs", SIGNALING_NAN.repeat(2)),
        ("entropy_mean", float("inf")),
        ("length", 1e300),
    ],
    ids=lambda value: str(value)[:20],
)
def test_numbers_of_a_damaged_parquet_file_are_handled(
    tmp_path: Path, column: str, value: object
) -> None:
    path = tmp_path / "step-000001.rank-0.parquet"
    rows: dict[str, object] = {
        "step": [1.0] * 2,
        "rank": [0.0] * 2,
        "group_id": ["g"] * 2,
        "text": ["a", "b"],
        "length": [2.0] * 2,
        "reward": pa.array([0.0, 1.0], pa.float32()),
        "token_ids": [[1, 2]] * 2,
        "learner_logprobs": pa.array([np.float32([-1, -2])] * 2, pa.list_(pa.float32())),
        "sampler_logprobs": pa.array([np.float32([-1, -2])] * 2, pa.list_(pa.float32())),
        "entropy_mean": [0.5] * 2,
    }
    if isinstance(value, np.ndarray):
        offsets = pa.array([0, 2, 4], pa.int32())
        buffer = pa.py_buffer(np.concatenate([np.float32([-1, -2]), value]).tobytes())
        values = pa.Array.from_buffers(pa.float32(), 4, [None, buffer])
        rows[column] = pa.ListArray.from_arrays(offsets, values)
    elif isinstance(value, np.float32):
        buffer = pa.py_buffer(np.append(np.float32([1]), value).tobytes())
        rows[column] = pa.Array.from_buffers(pa.float32(), 2, [None, buffer])
    else:
        rows[column] = [value] * 2
    pq.write_table(pa.table(rows), path)
    steps, reader = read(dumps_among([path]))
    assert reader.failed or reader.responses == 2 or reader.damaged
    if column != "step":
        assert list(steps) == [1]
