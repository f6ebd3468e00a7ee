"""Event files, written by torch's SummaryWriter and by TensorBoard itself."""

from __future__ import annotations

import json
import math
import struct
from io import BufferedReader
from pathlib import Path

import pytest
from tensorboard.compat.proto import event_pb2, summary_pb2
from tensorboard.summary.writer.event_file_writer import EventFileWriter
from torch.utils.tensorboard import SummaryWriter

from grpodoctor.frameworks.row_keys import RowKeys
from grpodoctor.runs.log_formats.decoding.crc32c import masked_crcs, valid_frames
from grpodoctor.runs.log_formats.registry import log_format_of
from grpodoctor.runs.log_formats.tensorboard import TensorBoard
from grpodoctor.runs.reading.framework_follower import FrameworkFollower
from grpodoctor.runs.reading.opening import open_run
from grpodoctor.support.files import growing_files
from grpodoctor.vocabulary.values import scalar
from tests.runs.log_formats.binary_logs import rows_around_cut, rows_of

KEYS = ("train/loss", "train/reward", "train/reward_std", "train/kl", "train/completion_length")


def log_step(writer: SummaryWriter, step: int, shift: float = 0.0) -> None:
    for place, key in enumerate(KEYS):
        writer.add_scalar(key, step + place / 8 + shift, step, walltime=1e9 + step)
    writer.flush()


def only_file(directory: Path) -> Path:
    (path,) = directory.glob("events*")
    return path


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "runs"


def test_scalars_are_joined_by_step(directory: Path) -> None:
    with SummaryWriter(str(directory)) as writer:
        for step in range(1, 31):
            log_step(writer, step)
    path = only_file(directory)
    assert log_format_of(path).name == "tensorboard"
    rows, damage = rows_of(TensorBoard(path, RowKeys()))
    assert not damage
    assert [row.step for row in rows] == list(range(1, 31))
    assert [row.time for row in rows] == [1e9 + step for step in range(1, 31)]
    assert all(
        row.values == {key: row.step + place / 8 for place, key in enumerate(KEYS)} for row in rows
    )


@pytest.mark.parametrize("options", [{"new_style": True}, {"double_precision": True}, {}])
def test_a_scalar_may_be_a_tensor(directory: Path, options: dict[str, bool]) -> None:
    with SummaryWriter(str(directory)) as writer:
        for step, value in enumerate([0.5, -2.25, math.inf, math.nan, 1e-30]):
            writer.add_scalar("kl", value, step, **options)
    rows, damage = rows_of(TensorBoard(only_file(directory), RowKeys()))
    assert not damage
    found = [row.values["kl"] for row in rows]
    assert found[:3] == [0.5, -2.25, math.inf]
    assert math.isnan(found[3])
    assert found[4] == pytest.approx(1e-30)


@pytest.mark.parametrize(
    ("kind", "fields", "expected"),
    [
        (1, {"float_val": [0.25]}, 0.25),
        (2, {"double_val": [0.1]}, 0.1),
        (3, {"int_val": [-3]}, -3.0),
        (9, {"int64_val": [-(2**40)]}, -(2.0**40)),
        (1, {"tensor_content": struct.pack("<f", 0.75)}, 0.75),
        (2, {"tensor_content": struct.pack("<d", 0.1)}, 0.1),
        (9, {"tensor_content": struct.pack("<q", -7)}, -7.0),
        (1, {"float_val": [0.25, 0.5]}, None),
    ],
)
def test_a_tensor_of_any_type_of_number(
    directory: Path, kind: int, fields: dict[str, object], expected: float | None
) -> None:
    value = summary_pb2.Summary.Value(tag="x")
    value.tensor.dtype = kind
    for name, content in fields.items():
        if isinstance(content, bytes):
            setattr(value.tensor, name, content)
        else:
            getattr(value.tensor, name).extend(content)
    writer = EventFileWriter(str(directory))
    writer.add_event(event_pb2.Event(step=3, summary=summary_pb2.Summary(value=[value])))
    writer.close()
    rows, damage = rows_of(TensorBoard(only_file(directory), RowKeys()))
    assert not damage
    assert [dict(row.values) for row in rows] == ([{"x": expected}] if expected is not None else [])


def test_images_texts_and_histograms_are_skipped(directory: Path) -> None:
    import numpy as np

    with SummaryWriter(str(directory)) as writer:
        writer.add_histogram("h", np.arange(1000.0), 1)
        writer.add_image("i", np.zeros((3, 64, 64), dtype=np.uint8), 1)
        writer.add_text("note", "hello", 1)
        writer.add_scalar("reward", 0.5, 1)
        writer.add_hparams({"lr": 0.1}, {"hparam/accuracy": 0.5}, run_name="hp")
    rows, damage = rows_of(TensorBoard(only_file(directory), RowKeys()))
    assert not damage
    assert [dict(row.values) for row in rows] == [{"reward": 0.5}]


@pytest.mark.slow
def test_an_oversized_image_is_skipped(directory: Path) -> None:
    writer = EventFileWriter(str(directory))
    image = summary_pb2.Summary.Value(tag="i")
    image.image.encoded_image_string = b"x" * (9 * 1024 * 1024)
    for step in (1, 2):
        writer.add_event(event_pb2.Event(step=step, summary=summary_pb2.Summary(value=[image])))
        number = summary_pb2.Summary.Value(tag="reward", simple_value=step)
        writer.add_event(event_pb2.Event(step=step, summary=summary_pb2.Summary(value=[number])))
    writer.close()
    rows, damage = rows_of(TensorBoard(only_file(directory), RowKeys()))
    assert not damage
    assert [row.values["reward"] for row in rows] == [1, 2]


def test_the_arguments_of_transformers_are_the_settings(directory: Path) -> None:
    """Its callback writes them as a text, next to the numbers."""
    arguments = {"num_generations": 8, "beta": 0.04, "learning_rate": 1e-6, "num_iterations": 2}
    with SummaryWriter(str(directory)) as writer:
        writer.add_text("args", json.dumps(arguments, indent=2))
        writer.add_text("model_config", json.dumps({"model_type": "qwen2"}))
        for step in range(1, 4):
            log_step(writer, step)
    reader = TensorBoard(only_file(directory), RowKeys())
    rows_of(reader)
    assert reader.config == {**arguments, "model_config": {"model_type": "qwen2"}}
    knobs = open_run(directory).manifest.knobs
    assert knobs["group_size"] == 8
    assert knobs["kl_coefficient"] == 0.04


def test_steps_are_followed_while_they_are_written(directory: Path) -> None:
    writer = SummaryWriter(str(directory))
    writer.flush()
    reader = TensorBoard(only_file(directory), RowKeys())
    seen = list[int]()
    for step in range(1, 20):
        log_step(writer, step)
        rows, damage = rows_of(reader)
        assert not damage
        seen += [row.step for row in rows if row.step is not None]
        assert seen[-1] == step, "the last step is given once a second look finds nothing more"
    writer.close()
    assert seen == list(range(1, 20))


def test_no_byte_is_read_twice_except_in_a_torn_record(directory: Path) -> None:
    writer = SummaryWriter(str(directory))
    writer.flush()
    path = only_file(directory)
    reader, read = TensorBoard(path, RowKeys()), 0
    for step in range(1, 50):
        log_step(writer, step)
        more = True
        while more:
            chunk = reader.read()
            read, more = read + chunk.size, chunk.more
    writer.close()
    assert read == path.stat().st_size


def test_a_file_cut_anywhere_is_read_up_to_the_cut_and_continued(directory: Path) -> None:
    with SummaryWriter(str(directory)) as writer:
        for step in range(1, 4):
            log_step(writer, step)
    data = only_file(directory).read_bytes()
    torn = directory / "torn.tfevents.1"
    for cut in range(0, len(data), 7):
        rows = rows_around_cut(data, cut, torn, lambda path: TensorBoard(path, RowKeys()))
        values = [pair for row in rows for pair in row.values.items()]
        assert len(values) == 3 * len(KEYS)


def test_a_damaged_record_is_counted_and_the_others_are_read(directory: Path) -> None:
    with SummaryWriter(str(directory)) as writer:
        for step in range(1, 101):
            log_step(writer, step)
    path = only_file(directory)
    good = path.read_bytes()
    for place in (len(good) // 2, len(good) // 3, 200):
        data = bytearray(good)
        data[place] ^= 0x55
        path.write_bytes(data)
        rows, damage = rows_of(TensorBoard(path, RowKeys()))
        assert 1 <= len(damage) <= 2
        assert sum(len(row.values) for row in rows) >= 100 * len(KEYS) - 2


def test_zeros_left_by_a_crash_are_damage(directory: Path) -> None:
    with SummaryWriter(str(directory)) as writer:
        log_step(writer, 1)
    path = only_file(directory)
    whole = path.read_bytes()
    path.write_bytes(whole + bytes(4096) + whole)
    rows, damage = rows_of(TensorBoard(path, RowKeys()))
    assert len(damage) == 1
    assert [row.step for row in rows] == [1]  # twice the same step, joined


def test_the_checksums_are_castagnolis() -> None:
    """Against the published vector: 32 zeros give 8a9136aa, before masking."""
    crc = 0x8A9136AA
    masked = ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF
    assert masked_crcs([bytes(32), b"", bytes(32)]) == [masked, masked_crcs([b""])[0], masked]
    assert masked_crcs([]) == []
    assert len(valid_frames(b"short")) == 0


def test_files_of_one_directory_are_one_log_in_order_of_time(
    directory: Path,
) -> None:
    """A job that was killed at step 8 and resumed from step 5 wrote two files."""
    for stamp, steps, shift in ((1700000000, range(1, 9), 0.0), (1700009999, range(6, 12), 0.5)):
        aside = directory / "aside"
        with SummaryWriter(str(aside)) as writer:
            for step in steps:
                log_step(writer, step, shift)
        only_file(aside).rename(directory / f"events.out.tfevents.{stamp}.host.1.0")
    run = open_run(directory)
    steps = list(run.steps)
    last = {record.step: scalar(record.values["optimizer/loss"]) for record in steps}
    assert sorted(last) == list(range(1, 12))
    assert last[5] == 5.0
    assert last[6] == 6.5
    assert last[11] == 11.5
    assert any("went back" in note or "back" in note for note in run.notes)


def test_launches_of_transformers_are_parts_of_one_log(directory: Path) -> None:
    launches = [("Feb25_04-10-46_host", 1740427846, 1), ("Jan02_10-00-00_host", 1767348000, 4)]
    for name, stamp, first in launches:
        with SummaryWriter(str(directory / name)) as writer:
            for step in range(first, first + 3):
                log_step(writer, step)
        path = only_file(directory / name)
        path.rename(path.with_name(f"events.out.tfevents.{stamp}.host.1.0"))
    follower = FrameworkFollower(directory)
    steps, more = [], True
    while more:
        poll = follower.poll(final=True)
        steps += poll.steps
        more = poll.more
    assert [record.step for record in steps] == [1, 2, 3, 4, 5, 6]


@pytest.mark.parametrize("files", [20, 200])
def test_the_work_grows_with_the_number_of_files_and_not_its_square(
    files: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A job that is restarted at every step leaves a file for each."""
    for number in range(files):
        writer = EventFileWriter(str(tmp_path), filename_suffix=f".{number}")
        value = summary_pb2.Summary.Value(tag="train/reward", simple_value=number / files)
        summary = summary_pb2.Summary(value=[value])
        writer.add_event(event_pb2.Event(wall_time=1e9 + number, step=number, summary=summary))
        writer.close()
        (written,) = tmp_path.glob(f"*.{number}")
        written.rename(tmp_path / f"events.out.tfevents.{1_000_000 + number}.host")
    opened: list[Path] = []
    original = growing_files.open_regular

    def counted(path: Path) -> BufferedReader:
        opened.append(path)
        return original(path)

    monkeypatch.setattr(growing_files, "open_regular", counted)
    run = open_run(tmp_path)
    assert [step.step for step in run.steps] == list(range(files))
    assert len(opened) <= 8 * files
