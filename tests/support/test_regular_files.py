"""Reading files whose paths come from outside."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from grpodoctor.errors import RunError
from grpodoctor.support.regular_files import open_regular


@pytest.mark.timeout(20)
def test_pipes_devices_and_folders_are_refused_without_waiting(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "endless").symlink_to("/dev/zero")
    for path in (tmp_path / "pipe", tmp_path / "endless"):
        with pytest.raises(RunError, match="not a regular file"):
            open_regular(path)
    with pytest.raises(IsADirectoryError):
        open_regular(tmp_path)
