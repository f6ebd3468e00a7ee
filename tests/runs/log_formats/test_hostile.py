"""For any content of a file: a clear error or counted damage, in bounded time and memory."""

from __future__ import annotations

import gzip
import json
import random
import struct
import tempfile
import time
import tracemalloc
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from grpodoctor.errors import GrpodoctorError
from grpodoctor.frameworks.row_keys import RowKeys
from grpodoctor.runs.log_formats.base import WaitingReader
from grpodoctor.runs.log_formats.decoding.crc32c import masked_crcs
from grpodoctor.runs.log_formats.registry import LogFormat, all_log_formats, log_format_named
from grpodoctor.runs.reading.opening import open_run
from grpodoctor.runs.reading.read_options import ReadOptions
from tests.runs.log_formats.sound_logs import LINES, ROW, SOUND, events, field, frame
from tests.samples import sampled

PROCESSOR_SECONDS = 30.0
MEGABYTES = 96.0
DOCUMENTS, DOCUMENT_MEGABYTES = ("json", "kaggle", "notebook", "trainer_state"), 400.0
"""Read whole: an attempt takes a dozen times the file's size, which is bounded separately."""
FORMATS = [each.name for each in all_log_formats()]


def read_all(form: LogFormat, data: bytes) -> int:
    """Read a file as that format, to its end; how many rows it gave."""
    with tempfile.TemporaryDirectory() as home:
        path = Path(home) / "log"
        path.write_bytes(data)
        reader = form.open(path, RowKeys())
        rows = looks = idle = 0
        while idle < 2:
            chunk = reader.read()
            rows += len(chunk.records)
            looks += 1
            idle = 0 if chunk.more or chunk.records else idle + 1
            assert looks < 1000 + len(data) // 1000, "it never ends"
        if isinstance(reader, WaitingReader):
            rows += len(reader.read_end().records)
        return rows


def bounded(call: Callable[[], object]) -> None:
    """Run it; it may say what is wrong, but may not take long."""
    began = time.process_time()
    try:
        call()
    except GrpodoctorError as error:
        said = str(error)
    else:
        said = ""
    assert "\n" not in said
    assert time.process_time() - began < PROCESSOR_SECONDS


@st.composite
def damaged(draw: st.DrawFn, sound: bytes) -> bytes:
    """A sound file with some bytes changed, cut out or put in."""
    data = bytearray(sound)
    for _ in range(draw(st.integers(1, 6))):
        at = draw(st.integers(0, max(0, len(data) - 1)))
        kind = draw(st.sampled_from(["flip", "cut", "insert", "end", "repeat"]))
        if kind == "flip" and data:
            data[at] = draw(st.integers(0, 255))
        elif kind == "cut":
            del data[at : at + draw(st.integers(1, 64))]
        elif kind == "insert":
            data[at:at] = draw(st.binary(max_size=32))
        elif kind == "end":
            del data[at:]
        else:
            data[at:at] = data[at : at + 200] * 3
    return bytes(data)


def test_every_format_has_a_sound_example() -> None:
    assert sorted(SOUND) == sorted(FORMATS)


@pytest.mark.parametrize("name", FORMATS)
def test_the_sound_example_is_read(name: str) -> None:
    form = log_format_named(name)
    assert form is not None
    assert read_all(form, SOUND[name]) >= 19


@pytest.mark.parametrize("name", FORMATS)
def test_any_bytes_are_read_in_bounded_time(name: str) -> None:
    form = log_format_named(name)
    assert form is not None

    @settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck))
    @given(st.binary(max_size=2000))
    def check(data: bytes) -> None:
        bounded(lambda: read_all(form, data))

    check()


@pytest.mark.parametrize("name", FORMATS)
def test_a_damaged_file_is_read_in_bounded_time(name: str) -> None:
    form = log_format_named(name)
    assert form is not None

    @settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
    @given(damaged(SOUND[name]))
    def check(data: bytes) -> None:
        bounded(lambda: read_all(form, data))

    check()


@cache
def bad(what: str) -> bytes:
    return BAD[what]()


def gzip_bomb() -> bytes:
    return gzip.compress(bytes(50 * 1024 * 1024), compresslevel=1)


def zeros_that_look_like_events() -> bytes:
    return events() + bytes(300_000) + events()


def lengths_that_nobody_has() -> bytes:
    return b"".join(
        struct.pack("<QI", length, masked_crcs([struct.pack("<Q", length)])[0]) + b"x" * 100
        for length in (2**63, 2**40, 2**31, 10**9)
    )


BAD: dict[str, Callable[[], bytes]] = {
    "empty": bytes,
    "one long line": lambda: b"x" * 20_000_000,
    "one long JSON line": lambda: b'{"step": 1, "a": "' + b"x" * 20_000_000 + b'"}\n',
    "nested lists": lambda: b"[" * 200_000,
    "nested objects": lambda: b'{"a":' * 100_000 + b"1" + b"}" * 100_000 + b"\n",
    "not numbers": lambda: b'{"step": NaN, "loss": Infinity, "reward": NaN}\n' * 1000,
    "digits without end": lambda: b'{"step": 1, "loss": ' + b"9" * 1_000_000 + b"}\n",
    "huge steps": lambda: b'{"step": 1e300, "loss": 1, "reward": -9e999}\n' * 50,
    "UTF-16": lambda: "\n".join(LINES).encode("utf-16"),
    "latin 1": lambda: '{"step": 1, "m\xe9": 1}\n'.encode("latin-1") * 100,
    "all bytes": lambda: bytes(range(256)) * 4000,
    "random": lambda: random.Random(0).randbytes(2_000_000),
    "zeros": lambda: bytes(3_000_000),
    "line ends": lambda: b"\n" * 500_000,
    "returns": lambda: b"\r" * 1_000_000,
    "escapes": lambda: b"\x1b[" * 500_000,
    "many keys": lambda: json.dumps({f"k{n}": n for n in range(100_000)}).encode() + b"\n",
    "many columns": lambda: b"," * 1_000_000 + b"\n" + b"1," * 500_000,
    "open quotes": lambda: b'"' * 500_001,
    "printed dictionaries": lambda: b"{" * 100_000 + b"'a': 1" + b"}" * 100_000,
    "dashes": lambda: b"step:1" + b" - a:1" * 200_000 + b"\n",
    "bars": lambda: b"Step 1 " + b"| A 1 " * 200_000 + b"\n",
    "gzip": gzip_bomb,
    "zeros in events": zeros_that_look_like_events,
    "lengths": lengths_that_nobody_has,
    "nested messages": lambda: frame(field(5, field(1, field(8, field(2, field(2, b"x"))))))  * 999,
    "wrong database": lambda: b"SQLite format 3\0" + random.Random(1).randbytes(100_000),
}  # fmt: skip


@pytest.mark.parametrize("what", sampled(sorted(BAD), 3))
def test_bad_files_of_any_format(what: str, tmp_path: Path) -> None:
    data = bad(what)
    for name in FORMATS:
        form = log_format_named(name)
        assert form is not None
        bounded(lambda form=form: read_all(form, data))  # type: ignore[misc]


@pytest.mark.parametrize("what", sampled(sorted(BAD), 3))
@pytest.mark.parametrize("suffix", [".jsonl", ".json", ".csv", ".log", ".tfevents.1", ".db"])
def test_bad_files_are_opened_by_their_suffix(what: str, suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"metrics{suffix}"
    path.write_bytes(bad(what))
    bounded(lambda: list(open_run(path).steps))


@pytest.mark.parametrize(
    "what", sampled(["one long line", "nested objects", "gzip", "many keys"], 2)
)
def test_memory_is_bounded(what: str, tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(bad(what))
    for name in FORMATS:
        tracemalloc.start()
        bounded(
            lambda name=name: list(open_run(path, ReadOptions(format=name)).steps)  # type: ignore[misc]
        )
        peak = tracemalloc.get_traced_memory()[1] / 2**20
        tracemalloc.stop()
        assert peak < (DOCUMENT_MEGABYTES if name in DOCUMENTS else MEGABYTES), name


def test_invalid_numbers_do_not_affect_the_others(tmp_path: Path) -> None:
    path = tmp_path / "metrics.csv"
    header = ",".join(ROW)
    path.write_text(f"{header}\n1,nan,0.5,0.2,inf,9,1e-6\n2,,0.5,,NaN,9,-inf\n")
    steps = list(open_run(path).steps)
    assert [record.step for record in steps] == [1, 2]
    assert "reward/mean" in steps[0].values
