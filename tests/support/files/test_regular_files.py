"""Reading files whose paths come from outside."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from grpodoctor.errors import RunError
from grpodoctor.support.files.regular_files import open_regular, read_regular


@pytest.mark.timeout(20)
def test_pipes_devices_and_folders_are_refused_without_waiting(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "endless").symlink_to("/dev/zero")
    for path in (tmp_path / "pipe", tmp_path / "endless"):
        with pytest.raises(RunError, match="not a file"):
            open_regular(path)
    with pytest.raises(IsADirectoryError):
        open_regular(tmp_path)


@pytest.mark.timeout(20)
def test_a_file_read_as_a_whole_has_a_bounded_size(tmp_path: Path) -> None:
    small = tmp_path / "small"
    small.write_bytes(b"x" * 10)
    assert read_regular(small, 10) == b"x" * 10
    with pytest.raises(OSError, match="more than 0 MiB"):
        read_regular(small, 9)
    with pytest.raises(OSError, match="a device, not a file"):
        read_regular(Path("/dev/zero"))
