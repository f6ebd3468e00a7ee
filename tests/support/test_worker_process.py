"""Worker processes that answer requests."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.connection import Pipe
from pathlib import Path

import pytest

from grpodoctor.support.worker_process import WorkerProcess, send_reply

ECHO = """
import ctypes, os, time
from grpodoctor.support.worker_process import parent_connection, send_reply
connection = parent_connection()
while True:
    try:
        message = connection.recv()
    except EOFError:
        break
    print("noise")
    if message == "die":
        os._exit(1)
    if message == "fork and die":
        os.fork() and os._exit(1)
        time.sleep(60)
    if message == "hang":
        time.sleep(3600)
    if message == "hang in native code":
        connection.send_bytes(b"1")
        ctypes.PyDLL(None).sleep(3600)  # keeps the interpreter's lock
    send_reply(connection, {"got": message})
"""


@pytest.fixture
def worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> WorkerProcess:
    (tmp_path / "message_echo.py").write_text(ECHO)
    monkeypatch.syspath_prepend(tmp_path)
    return WorkerProcess("message_echo")


def test_requests_are_answered_by_one_process(worker: WorkerProcess) -> None:
    assert worker.request("one", 60) == {"got": "one"}
    pid = worker.pid
    large = "x" * 3_000_000
    assert worker.request(large, 60) == {"got": large}
    assert worker.pid == pid
    worker.close()
    assert worker.pid is None


def test_two_threads_that_close_a_worker_end_it_once(worker: WorkerProcess) -> None:
    worker.request("one", 60)
    with ThreadPoolExecutor(2) as threads:
        list(threads.map(lambda _: worker.close(), range(2)))
    assert worker.request("two", 60) == {"got": "two"}
    worker.close()


def test_an_interrupted_close_closes_no_descriptor_twice(
    worker: WorkerProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker.request("one", 60)
    process = worker._process  # an interrupted end leaves it unattended
    assert process is not None

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(subprocess.Popen, "wait", interrupted)
        with pytest.raises(KeyboardInterrupt):
            worker.close()
    process.wait(60)
    worker.close()
    assert worker.request("two", 60) == {"got": "two"}
    worker.close()


@pytest.mark.parametrize("message", ["die", "fork and die"])
def test_a_worker_that_dies_is_replaced(worker: WorkerProcess, message: str) -> None:
    with pytest.raises(EOFError):
        worker.request(message, 60)
    assert worker.request("one", 60) == {"got": "one"}
    assert worker.pid is not None
    os.kill(worker.pid, signal.SIGKILL)
    with pytest.raises(EOFError):
        worker.request("two", 60)
    worker.close()


def test_a_worker_that_hangs_is_killed(worker: WorkerProcess) -> None:
    worker.request("one", 60)
    pid = worker.pid
    with pytest.raises(TimeoutError):
        worker.request("hang", 0.2)
    assert not Path(f"/proc/{pid}").exists()


@pytest.mark.parametrize("message", ["one", "hang in native code"])
@pytest.mark.usefixtures("worker")
def test_a_worker_ends_with_its_parent(tmp_path: Path, message: str) -> None:
    code = (
        "import os\n"
        "from grpodoctor.support.worker_process import WorkerProcess\n"
        "worker = WorkerProcess('message_echo')\n"
        f"worker.request({message!r}, 60)\n"
        "print(worker.pid, flush=True)\n"
        "os.kill(os.getpid(), 9)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), *filter(None, sys.path)])},
    )
    process = Path(f"/proc/{int(done.stdout)}")
    deadline = time.monotonic() + 30
    while process.exists() and "Z" not in (process / "stat").read_text().rsplit(")", 1)[1][:3]:
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_a_reply_to_a_parent_that_is_gone_ends_the_worker_without_a_report() -> None:
    ours, theirs = Pipe()
    ours.close()
    with theirs, pytest.raises(SystemExit) as ended:
        send_reply(theirs, {"got": "one"})
    assert not ended.value.code


def test_a_process_that_cannot_be_started_leaves_no_descriptor_open(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise BlockingIOError(11, "Resource temporarily unavailable")

    worker = WorkerProcess("grpodoctor.nothing")
    before = len(list(Path("/proc/self/fd").iterdir()))
    monkeypatch.setattr(subprocess, "Popen", refuse)
    with pytest.raises(BlockingIOError):
        worker.request("anything", 1)
    assert len(list(Path("/proc/self/fd").iterdir())) == before
    assert worker.pid is None
