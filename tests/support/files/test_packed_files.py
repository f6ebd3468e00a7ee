"""Packed logs and dumps."""

from __future__ import annotations

import bz2
import gzip
import io
import shutil
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import orjson
import pyarrow as pa
import pytest

from grpodoctor.errors import RunError
from grpodoctor.frameworks.rollout_formats.registry import dumps_among
from grpodoctor.runs.reading.framework_follower import FrameworkFollower
from grpodoctor.runs.reading.opening import FrameworkRun, open_run
from grpodoctor.runs.reading.read_options import ReadOptions
from grpodoctor.runs.records import StepRecord
from grpodoctor.runs.rollout_dumps import runners
from grpodoctor.runs.rollout_dumps.dump_reader import DumpReader
from grpodoctor.support.files import packed_files as packed
from grpodoctor.support.files.packed_files import Unpacked, unpack
from grpodoctor.support.files.regular_files import files_below
from tests.runs.rollout_dumps.samples import STEPS, WRITERS, verl

LOGS = Path(__file__).parents[2] / "data/logs"


def zstd(data: bytes) -> bytes:
    found: bytes = pa.compress(data, codec="zstd", asbytes=True)
    return found


PACKERS = {".gz": gzip.compress, ".zst": zstd}
every_way = pytest.mark.parametrize("suffix", PACKERS)


def pack(path: Path, suffix: str) -> Path:
    target = path.with_name(path.name + suffix)
    target.write_bytes(PACKERS[suffix](path.read_bytes()))
    path.unlink()
    return target


def steps_in(path: Path) -> list[StepRecord]:
    return list(open_run(path).steps)


@pytest.mark.parametrize("path", sorted(LOGS.glob("*.gz")), ids=lambda path: path.name)
def test_real_packed_logs_are_read(tmp_path: Path, path: Path) -> None:
    plain = tmp_path / path.name.removesuffix(".gz")
    plain.write_bytes(gzip.decompress(path.read_bytes()))
    expected = steps_in(plain)
    assert steps_in(path) == expected
    again = pack(plain, ".zst")
    assert steps_in(again) == expected


@every_way
def test_packed_dumps_next_to_a_packed_log(tmp_path: Path, suffix: str) -> None:
    verl(tmp_path)
    rows = [{"step": step, "data": {"actor/pg_loss": 0.1, "actor/grad_norm": 1.0}}
            for step in STEPS]  # fmt: skip
    log = tmp_path / "logs" / "metrics.jsonl"
    log.parent.mkdir()
    log.write_bytes(b"".join(orjson.dumps(row) + b"\n" for row in rows))
    plain = steps_in(tmp_path)
    for path in [log, *(tmp_path / "rollouts").iterdir()]:
        pack(path, suffix)
    run = open_run(tmp_path)
    found = list(run.steps)
    assert [{**each.values, "length/max": 0} for each in found] == [
        {**each.values, "length/max": 0} for each in plain
    ]
    assert len(found) == 3
    assert isinstance(run, FrameworkRun)
    assert len(list(run.rollouts(2))) == 16


@every_way
@pytest.mark.parametrize("name", ["open-instruct traces", "NeMo RL train data"])
def test_a_packed_dump_larger_than_a_block_and_than_a_shard(
    tmp_path: Path, name: str, suffix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from grpodoctor.frameworks.rollout_formats import jsonlines

    WRITERS[name](tmp_path)
    monkeypatch.setattr(jsonlines, "BLOCK_BYTES", 300)
    monkeypatch.setattr(packed, "_BLOCK", 77)
    plain = dict(DumpReader(dumps_among(files_below(tmp_path)), runner=runners.in_process).steps())
    for path in list(files_below(tmp_path)):
        pack(path, suffix)
    found = dumps_among(files_below(tmp_path))
    assert {form.name for form, _ in found} == {name}
    reader = DumpReader(found, runner=runners.in_process, shard_bytes=100)
    assert dict(reader.steps()) == plain
    assert not reader.damage


@every_way
def test_a_truncated_file_is_read_up_to_its_end_and_reported(tmp_path: Path, suffix: str) -> None:
    row = {"input": "p", "output": "some words", "gts": "", "score": 1.0, "step": 1}
    lines = b"".join(orjson.dumps({**row, "uid": f"{n * 7919 % 10007}_0_0"}) + b"\n"
                     for n in range(50_000))  # fmt: skip
    whole = PACKERS[suffix](lines)
    (tmp_path / f"1.jsonl{suffix}").write_bytes(whole[: len(whole) // 2])
    reader = DumpReader(dumps_among(files_below(tmp_path)), runner=runners.in_process)
    assert list(dict(reader.steps())) == [1]
    assert 1000 < reader.responses < 50_000
    assert reader.damaged >= 1
    assert any("damaged" in each.why for each in reader.damage)


@every_way
def test_a_small_truncated_file_keeps_what_precedes_the_cut(tmp_path: Path, suffix: str) -> None:
    """A log of one megabyte is read at once; the failed read had unpacked nearly all of it."""
    lines = b"".join(b'{"step": %d, "x": %d}\n' % (n, n * n % 97) for n in range(40_000))
    path, copy, notes = tmp_path / f"a.jsonl{suffix}", tmp_path / "copy", list[str]()
    path.write_bytes(PACKERS[suffix](lines)[:-9])
    unpack(path, copy, notes.append)
    text = copy.read_bytes()
    assert lines.startswith(text)
    assert len(text) > len(lines) - 200_000  # a block of zstd has 128 kB
    assert "only the part before" in notes[0]


@every_way
@pytest.mark.parametrize("name", ["metrics.jsonl", "train.log", "history.csv", "1.jsonl"])
def test_damage_never_ends_in_a_traceback(tmp_path: Path, suffix: str, name: str) -> None:
    data = PACKERS[suffix](b'{"step": 1, "loss": 0.5, "reward": 0.1, "kl": 0.0}\n' * 2000)
    for at, bad in enumerate((b"", data[:1], data[:40], data[:-1], b"\0" * 300, b"no such thing",
                              data[:30] + bytes([data[30] ^ 255]) + data[31:])):  # fmt: skip
        path = tmp_path / str(at) / f"{name}{suffix}"
        path.parent.mkdir()
        path.write_bytes(bad)
        for given in (path, path.parent):
            with suppress(RunError):
                steps_in(given)


@every_way
@pytest.mark.parametrize("name", ["metrics.jsonl", "1.jsonl"])
def test_a_decompression_bomb_is_refused(
    tmp_path: Path, suffix: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(packed, "_ALWAYS_ALLOWED", 1024 * 1024)
    start = b'{"input": "p", "output": "x", "score": 1.0, "step": 1}\n'
    if name == "metrics.jsonl":
        start = b'{"step": 1, "loss": 0.5, "reward": 0.1, "kl": 0.0, "reward_std": 0.1}\n'
    bomb = PACKERS[suffix](start + b" " * 30_000_000)
    assert len(bomb) < 60_000
    path = tmp_path / f"{name}{suffix}"
    path.write_bytes(bomb)
    if name == "metrics.jsonl":
        with pytest.raises(RunError, match="unpacks to more than"):
            open_run(path)
        (tmp_path / "good.jsonl").write_bytes(start)
        run = open_run(tmp_path)
        assert len(list(run.steps)) == 1
        assert isinstance(run, FrameworkRun)
        assert any("unpacks to more than" in note for note in run.notes)
    else:
        reader = DumpReader(dumps_among([path]), runner=runners.in_process)
        dict(reader.steps())
        assert "unpacks to more than" in reader.failed[0]


def test_a_log_that_is_rotated_and_packed_while_it_is_followed_is_not_read_twice(
    tmp_path: Path,
) -> None:
    def line(step: int) -> bytes:
        row = {"actor/pg_loss": 0.1, "actor/grad_norm": 1.0, "critic/score/mean": 0.5}
        return orjson.dumps({"step": step, "data": row}) + b"\n"

    log = tmp_path / "metrics.jsonl"
    log.write_bytes(line(1) + line(2))
    follower, given = FrameworkFollower(tmp_path), list[int]()
    ends = time.monotonic() + 10
    while given != [1, 2] and time.monotonic() < ends:
        given += [each.step for each in follower.poll().steps]
    (tmp_path / "metrics.jsonl.1.gz").write_bytes(gzip.compress(log.read_bytes()))
    log.write_bytes(line(3))
    while given != [1, 2, 3] and time.monotonic() < ends:
        given += [each.step for each in follower.poll().steps]
        time.sleep(0.02)
    assert given == [1, 2, 3]


def test_other_packed_files_are_not_unpacked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copy(LOGS / "arvindcr4_metrics.jsonl.gz", tmp_path / "metrics.jsonl.gz")
    (tmp_path / "weights.tar.gz").write_bytes(gzip.compress(bytes(range(256)) * 1000))
    seen = list[str]()

    def unpack(path: Path, target: Path, told: Callable[[str], None]) -> None:
        seen.append(path.name)
        packed.unpack(path, target, told)

    monkeypatch.setattr("grpodoctor.runs.reading.log_files.unpack", unpack)
    assert len(steps_in(tmp_path)) == 100
    assert seen == ["metrics.jsonl.gz"]


def test_other_compressions_are_ignored(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl.bz2"
    path.write_bytes(bz2.compress(b'{"step": 1, "loss": 0.5}\n'))
    with pytest.raises(RunError):
        open_run(path, ReadOptions())


def test_seeking_back_is_limited_to_the_latest_read() -> None:
    data = bytes(range(256)) * 40
    file = Unpacked(io.BytesIO(gzip.compress(data)), Path("x.gz"), 100)
    assert file.read(1000) == data[:1000]
    file.seek(900)
    assert file.read(300) == data[900:1200]
    file.seek(5000)
    assert file.read(10) == data[5000:5010]
    with pytest.raises(ValueError, match="forwards"):
        file.seek(0)
    assert len(file.read(100_000)) == len(data) - 5010
    assert file.read(10) == b""
