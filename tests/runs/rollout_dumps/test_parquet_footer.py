"""Footers of Parquet files, as pyarrow reads them, and damaged ones that end its process."""

import io
import os
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from grpodoctor.frameworks.rollout_formats.parquet_footer import column_sizes
from tests.report.simulated import record_run

OPTIONAL, REQUIRED = b"\x25\x02\x18\x07correct", b"\x25\x00\x18\x07correct"
"""How a footer describes the column `correct`: field 3 (optional or not), field 4 (its name)."""


def table() -> pa.Table:
    """Nested, repeated, empty and long columns in several types."""
    return pa.table(
        {
            "step": list(range(50)),
            "text": ["many words " * 20, None] * 25,
            "tokens": [[1, 2, 3], []] * 25,
            "reward.parts": [{"format": 0.5, "answer": None}] * 50,
            "correct": [True, None] * 25,
        }
    )


@pytest.mark.parametrize("compression", ["none", "zstd", "snappy"])
def test_sizes_are_those_that_pyarrow_reports(compression: str) -> None:
    content = io.BytesIO()
    pq.write_table(table(), content, compression=compression, row_group_size=20)
    groups = column_sizes(content)
    metadata = pq.ParquetFile(content).metadata
    assert len(groups) == metadata.num_row_groups == 3
    for index, sizes in enumerate(groups):
        group = metadata.row_group(index)
        columns = [group.column(number) for number in range(group.num_columns)]
        assert [".".join(size.path) for size in sizes] == [each.path_in_schema for each in columns]
        assert [size.values for size in sizes] == [each.num_values for each in columns]
        assert [size.stored_bytes for size in sizes] == [
            each.total_compressed_size for each in columns
        ]
        assert [size.decoded_bytes for size in sizes] == [
            each.total_uncompressed_size for each in columns
        ]
        assert [size.is_bytes for size in sizes] == [
            each.physical_type == "BYTE_ARRAY" for each in columns
        ]


def error_of(content: bytes) -> str:
    """Why the footer cannot be read; empty if it can."""
    try:
        column_sizes(io.BytesIO(content))
    except ValueError as error:
        return str(error)
    return ""


@pytest.mark.slow
def test_each_damaged_byte_gives_sizes_or_one_error() -> None:
    content = io.BytesIO()
    pq.write_table(table(), content)
    whole = content.getvalue()
    start = len(whole) - 8 - int.from_bytes(whole[-8:-4], "little")
    for place in range(start, len(whole)):
        for value in (0, 0x0C, 0x9C, 0xFF):
            damaged = whole[:place] + bytes([value]) + whole[place + 1 :]
            assert "\n" not in error_of(damaged)


@pytest.mark.parametrize("content", [b"", b"PAR1", b"PAR1\xff\xff\xff\xffPAR1", b"\x19" * 100])
def test_what_is_no_footer_is_a_value_error(content: bytes) -> None:
    with pytest.raises(ValueError, match="Parquet footer"):
        column_sizes(io.BytesIO(content))


@pytest.mark.slow
def test_statistics_that_contradict_each_other_cost_the_file(tmp_path: Path) -> None:
    run = record_run(tmp_path / "run", 5)
    path = run / "rollouts" / "step-000004.rank-0.parquet"
    content = path.read_bytes()
    assert content.count(OPTIONAL) == 1
    path.write_bytes(content.replace(OPTIONAL, REQUIRED))
    command = [sys.executable, "-m", "grpodoctor", "check", str(run)]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])}
    result = subprocess.run(  # a test process that ends shows no failure
        command, capture_output=True, text=True, timeout=120, check=False, env=environment
    )
    assert result.returncode in {0, 1}, result.stderr
    assert "step-000004.rank-0.parquet: row group 0" in " ".join(result.stdout.split())
