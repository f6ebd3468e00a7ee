"""Locks that a fault interrupts."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from grpodoctor.support.files.locks import Lock, LockHeldError


def test_a_lock_that_cannot_be_signed_is_not_held(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", full)
        with pytest.raises(OSError, match="No space"):
            Lock.take(tmp_path / "lock")
    lock = Lock.take(tmp_path / "lock")
    with pytest.raises(LockHeldError):
        Lock.take(tmp_path / "lock")
    lock.release()
    Lock.take(tmp_path / "lock").release()


def test_a_lock_whose_descriptor_names_another_file_leaves_it_alone(tmp_path: Path) -> None:
    lock = Lock.take(tmp_path / "lock")
    number = lock.fd
    other = os.open(tmp_path / "other", os.O_RDWR | os.O_CREAT)
    os.write(other, b"mine")
    os.dup2(other, number)
    lock.release()
    assert (tmp_path / "other").read_bytes() == b"mine"
    assert os.pread(number, 4, 0) == b"mine"
    os.close(number)
    os.close(other)
