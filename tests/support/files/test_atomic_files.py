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


class Killed(BaseException):
    """Stands for SIGKILL."""


def kill_at_removal(monkeypatch: pytest.MonkeyPatch) -> None:
    """A removal of a folder ends after its first file, and the process with it."""

    def remove_a_part(folder: Path, **_options: bool) -> None:
        if folder.exists():
            (folder / "state").unlink()
            raise Killed

    monkeypatch.setattr(atomic_files.shutil, "rmtree", remove_a_part)


def make_folder(path: Path, content: str) -> None:
    path.mkdir()
    for name in ("state", "weights"):
        (path / name).write_text(content)


def replace_folder(path: Path, content: str) -> None:
    with atomic_files.atomic_folder(path) as folder:
        for name in ("state", "weights"):
            (folder / name).write_text(content)


def test_a_folder_is_replaced_whole(tmp_path: Path) -> None:
    make_folder(tmp_path / "model", "old")
    replace_folder(tmp_path / "model", "new")
    assert [path.read_text() for path in (tmp_path / "model").iterdir()] == ["new", "new"]
    assert names_in(tmp_path) == ["model"]


def test_a_replacement_that_is_killed_leaves_no_part_of_a_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_folder(tmp_path / "model", "old")
    with monkeypatch.context() as patched:
        kill_at_removal(patched)
        with pytest.raises(Killed):
            replace_folder(tmp_path / "model", "new")
    assert [path.read_text() for path in (tmp_path / "model").iterdir()] == ["new", "new"]
    atomic_files.remove_leftovers(tmp_path)
    assert names_in(tmp_path) == ["model"]


def test_a_removal_that_is_killed_leaves_no_part_under_the_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_folder(tmp_path / "model", "old")
    with monkeypatch.context() as patched:
        kill_at_removal(patched)
        with pytest.raises(Killed):
            atomic_files.remove_folder(tmp_path / "model")
    assert names_in(tmp_path) == [".model.removed"]
    atomic_files.remove_leftovers(tmp_path)
    assert names_in(tmp_path) == []
    atomic_files.remove_folder(tmp_path / "model")  # nothing to remove is no error


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
