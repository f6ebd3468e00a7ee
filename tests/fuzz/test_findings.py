"""What campaigns found, one minimal file each: refused in one line, or read."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from grpodoctor.cli.suggest_map import MapTarget, write_mapping
from grpodoctor.errors import ConfigError, DataError, GrpodoctorError, ModelError
from grpodoctor.frameworks.common_names import has_common_names
from grpodoctor.frameworks.registry import generic_framework
from grpodoctor.frameworks.rollout_formats.base import Responses
from grpodoctor.measure.ragged import Ragged, fingerprints
from grpodoctor.monitor.advice import advice_for
from grpodoctor.monitor.project_settings import load_settings
from grpodoctor.probe.inputs.checksums import open_checkpoint
from grpodoctor.probe.inputs.plan import read_plan
from grpodoctor.probe.inputs.prompts import read_prompts
from grpodoctor.probe.results.token_text import texts_of
from grpodoctor.remedies.base import number
from grpodoctor.remedies.length.longer_limit import LongerLimit
from grpodoctor.runs.reading.opening import open_run
from grpodoctor.runs.rollouts import read_rollouts
from grpodoctor.trainer.config.train_config import load_config
from grpodoctor.trainer.data.loading import read_problems

DEEP = "key = " + "[" * 5000
DIGITS = "key = " + "9" * 5000


def _not_utf8(count: int) -> pa.Array:
    binary = pa.array([b"\xff\xfe"] * count)
    return pa.Array.from_buffers(pa.string(), count, binary.buffers())


@pytest.mark.parametrize("text", [DEEP, DIGITS], ids=["deep", "digits"])
@pytest.mark.parametrize(
    "read",
    [load_settings, read_plan, lambda path: load_config(file=path)],
    ids=["settings", "grid", "train config"],
)
def test_toml_of_any_kind_is_refused_in_one_line(
    read: Callable[[Path], object], text: str, tmp_path: Path
) -> None:
    path = tmp_path / "settings.toml"
    path.write_text(text)
    with pytest.raises(ConfigError) as raised:
        read(path)
    assert "\n" not in str(raised.value)
    assert len(str(raised.value)) < 500


def test_an_assignment_too_deep_to_parse_is_text() -> None:
    with pytest.raises(ConfigError):
        load_config(assignments=["steps=" + "[" * 5000])


@pytest.mark.parametrize(
    "content",
    [b"\xbc\xff", b"map = 3\n", b"map = {a = 'reward/mean'}\n", DEEP.encode()],
    ids=["not text", "no table", "inline table", "deep"],
)
def test_a_mapping_that_cannot_be_added_leaves_the_file_alone(
    content: bytes, tmp_path: Path
) -> None:
    path = tmp_path / "grpodoctor.toml"
    path.write_bytes(content)
    with pytest.raises(ConfigError) as raised:
        write_mapping({"my/key": "entropy/mean"}, MapTarget(path, write=True))
    assert "\n" not in str(raised.value)
    assert path.read_bytes() == content


def test_parquet_texts_that_are_not_utf8_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "data.parquet"
    pq.write_table(pa.table({"prompt": _not_utf8(4), "answer": _not_utf8(4)}), path)
    for read in (lambda: read_prompts(path, 10), lambda: read_problems(path)):
        with pytest.raises(DataError, match="not a Parquet file"):
            read()
    rollouts = tmp_path / "run" / "rollouts"
    rollouts.mkdir(parents=True)
    path.rename(rollouts / "step-000001.rank-0.parquet")
    with pytest.raises(GrpodoctorError, match="cannot be read"):
        read_rollouts(tmp_path / "run", 1)


def test_two_columns_of_one_name_cost_the_file(tmp_path: Path) -> None:
    columns = [pa.array([1, 1]), pa.array([2, 2]), pa.array(["a", "b"]), pa.array([0.5, 1.0])]
    table = pa.Table.from_arrays(columns, ["step", "step", "text", "reward"])
    pq.write_table(table, tmp_path / "step-000001.rank-0.parquet")
    with pytest.raises(GrpodoctorError, match="two columns have the name 'step'"):
        open_run(tmp_path)


@pytest.mark.parametrize("offsets", ["[0, 1e999]", "[1e999, 8]", '[0, "x"]', "[0]"])
def test_a_safetensors_header_with_impossible_places_is_damage(
    offsets: str, tmp_path: Path
) -> None:
    header = f'{{"w": {{"dtype": "F32", "shape": [2], "data_offsets": {offsets}}}}}'.encode()
    content = struct.pack("<Q", len(header)) + header + bytes(8)
    (tmp_path / "model.safetensors").write_bytes(content)
    with pytest.raises(ModelError, match="no valid entry for 'w'"):
        open_checkpoint(str(tmp_path))


@pytest.mark.parametrize("value", [float("inf"), float("nan"), -float("inf")])
def test_settings_are_not_computed_from_readings_that_overflowed(value: float) -> None:
    known = {"length/truncated_rate": 0.5}
    advice = advice_for("soft-overlong", {}, "trl", readings={**known, "length/max": value})
    assert advice == advice_for("soft-overlong", {}, "trl", readings=known)


@pytest.mark.parametrize("setting", [float("inf"), float("nan"), 10**400])
def test_a_knob_without_a_finite_number_is_unknown(setting: float) -> None:
    assert number({"max_length": setting}, "max_length") is None


def test_lengths_that_are_no_lengths_are_unknown() -> None:
    lengths = np.array([5.0, -1.0, np.inf, np.nan])
    responses = Responses(steps_B=np.zeros(4, np.int64), names=list("abcd"), lengths_B=lengths)
    assert responses.lengths_B is not None
    assert np.array_equal(responses.lengths_B, [5.0, np.nan, np.nan, np.nan], equal_nan=True)


def test_a_tokenizer_with_infinite_ids_has_no_texts(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_text('{"model": {"vocab": {"a": 1e999}}}')
    assert texts_of(str(tmp_path)) == {}


def test_a_key_with_very_many_parts_is_no_common_name() -> None:
    table = generic_framework()
    assert has_common_names(table, ["a/b/entropy"])
    assert not has_common_names(table, ["a/" * 100_000 + "entropy"])  # hours, part by part


def test_a_longest_response_near_the_largest_number_gives_no_limit() -> None:
    readings = {"length/truncated_rate": 0.9, "length/max": 1e308}
    change = {"max_length": 512}
    assert LongerLimit().tuned(change, readings) == change


def test_token_ids_that_are_no_numbers_have_a_fingerprint() -> None:
    tokens = Ragged.of_lengths(np.array([1.0, np.nan, 1e300]), np.array([1, 2]))
    assert fingerprints(tokens).size == 2
