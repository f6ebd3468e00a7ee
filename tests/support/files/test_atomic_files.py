"""Atomic writes."""

from __future__ import annotations

from pathlib import Path

import pytest

from grpodoctor.support.files import atomic_files


def names_in(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir()]


def test_a_file_is_replaced_whole(tmp_path: Path) -> None:
    target = tmp_path / "file.json"
    target.write_bytes(b"old")
    atomic_files.write_bytes(target, b"new", sync=True)
    assert target.read_bytes() == b"new"
    assert names_in(tmp_path) == ["file.json"]


def test_a_failed_write_keeps_the_old_file_and_no_temporary_one(tmp_path: Path) -> None:
    target = tmp_path / "file.txt"
    atomic_files.write_text(target, "old")

    def fail() -> None:
        with atomic_files.atomic_path(target) as temporary:
            temporary.write_text("half")
            raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        fail()
    assert target.read_text() == "old"
    assert names_in(tmp_path) == ["file.txt"]


def test_a_reader_never_sees_the_name_of_a_file_being_written(tmp_path: Path) -> None:
    with atomic_files.atomic_path(tmp_path / "shard.npz") as temporary:
        temporary.write_bytes(b"half")
        assert list(tmp_path.glob("*.npz")) == []
        assert temporary.name.startswith(".")
    assert [path.name for path in tmp_path.iterdir()] == ["shard.npz"]


def test_a_folder_appears_whole_or_not_at_all(tmp_path: Path) -> None:
    def fail() -> None:
        with atomic_files.atomic_folder(tmp_path / "model") as folder:
            (folder / "weights").write_bytes(b"half")
            raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        fail()
    assert names_in(tmp_path) == []
    with atomic_files.atomic_folder(tmp_path / "model") as folder:
        (folder / "weights").write_bytes(b"whole")
    assert names_in(tmp_path) == ["model"]
