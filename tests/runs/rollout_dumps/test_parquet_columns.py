"""Columns are taken as they lie in Arrow's memory: with gaps, and from the middle."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from grpodoctor.frameworks.rollout_formats import parquet
from tests.runs.rollout_dumps.samples import WRITERS

ROWS = [[1, 2, None], None, [], [3], [None, 4, 5, 6], [7]]


@pytest.mark.parametrize("kind", [pa.float32(), pa.float64(), pa.int32(), pa.int64(), pa.uint16()])
@pytest.mark.parametrize("is_large", [False, True])
@pytest.mark.parametrize(("first", "size"), [(0, 6), (1, 4), (4, 2), (2, 1), (3, 0)])
def test_lists_with_gaps(kind: pa.DataType, is_large: bool, first: int, size: int) -> None:
    column = pa.array(ROWS, (pa.large_list if is_large else pa.list_)(kind))
    batch = pa.record_batch({"x": column}).slice(first, size)
    found = parquet.lists(batch, "x")
    assert found is not None
    nothing = np.nan if pa.types.is_floating(kind) else np.array(-1).astype(kind.to_pandas_dtype())
    for row, expected in enumerate(ROWS[first : first + size]):
        filled = [nothing if each is None else each for each in expected or []]
        np.testing.assert_array_equal(found.row(row), filled)
    assert len(found) == size


@pytest.mark.parametrize("kind", [pa.float32(), pa.float64(), pa.int32(), pa.bool_()])
def test_numbers_with_gaps(kind: pa.DataType) -> None:
    column = pa.array([1, None, 0, None, 1, 1, 0, 1, 0, None]).cast(kind)
    batch = pa.record_batch({"x": column})
    found = parquet.doubles(batch.slice(1, 8), "x")
    np.testing.assert_array_equal(found, [np.nan, 0, np.nan, 1, 1, 0, 1, 0])
    assert parquet.doubles(batch.slice(1, 1), "x") is None


def test_nonfinite_values_differ_from_missing_ones() -> None:
    column = pa.array([1.0, None, float("nan"), float("-inf")])
    found = parquet.doubles(pa.record_batch({"x": column}), "x")
    np.testing.assert_array_equal(found, [1.0, np.nan, np.inf, np.inf])


PROGRAM = """
import sys
from pathlib import Path
from grpodoctor.support.files.regular_files import files_below
from grpodoctor.runs.rollout_dumps import runners
from grpodoctor.frameworks.rollout_formats.registry import dumps_among
from grpodoctor.runs.rollout_dumps.dump_reader import DumpReader
reader = DumpReader(dumps_among(files_below(Path(sys.argv[1]))), runner=runners.in_process)
assert list(reader.steps()) and not reader.failed
print("pandas" in sys.modules)
"""


def test_pandas_is_not_loaded(tmp_path: Path) -> None:
    """pyarrow would, where it is installed: longer than a worker needs for its first shards."""
    for name in ("verl rollouts", "grpodoctor rollouts"):
        WRITERS[name](tmp_path / name)
    command = [sys.executable, "-c", PROGRAM, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.split() == ["False"]
