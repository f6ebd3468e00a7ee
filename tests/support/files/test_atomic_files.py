"""Atomic writes."""

from __future__ import annotations

import os
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


def record_order(monkeypatch: pytest.MonkeyPatch, root: Path) -> list[str]:
    """Note each fsync and rename, with paths relative to `root`."""
    order: list[str] = []

    def relative(path: Path) -> str:
        return str(path.relative_to(root)).replace(str(os.getpid()), "N")

    def fsync(fd: int) -> None:
        order.append(f"fsync {relative(Path(f'/proc/self/fd/{fd}').readlink())}")

    def moving(move):
        def call(source: Path, target: Path) -> Path:
            order.append(f"rename to {relative(target)}")
            return move(source, target)

        return call

    monkeypatch.setattr(atomic_files.os, "fsync", fsync)
    monkeypatch.setattr(Path, "rename", moving(Path.rename))
    monkeypatch.setattr(Path, "replace", moving(Path.replace))
    return order


def test_a_file_is_on_disk_before_it_has_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    order = record_order(monkeypatch, tmp_path)
    atomic_files.write_bytes(tmp_path / "run.json", b"{}", sync=True)
    file, *rest = order
    assert file.startswith("fsync .run.json.")
    assert rest == ["rename to run.json", "fsync ."]


def test_a_folder_is_on_disk_before_it_has_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    order = record_order(monkeypatch, tmp_path)
    with atomic_files.atomic_folder(tmp_path / "run/checkpoints/step-1") as folder:
        (folder / "weights").write_bytes(b"whole")
    assert order == [
        "fsync run/checkpoints/.step-1.partial/weights",
        "fsync run/checkpoints/.step-1.partial",
        "rename to run/checkpoints/step-1",
        "fsync run/checkpoints",
        "fsync run",
    ]
