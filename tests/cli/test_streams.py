"""Logs that arrive on standard input or as a shell substitution, and paths that are no files."""

from __future__ import annotations

import gzip
import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.samples import sampled

ROW = {"reward": 0.5, "reward_std": 0.1, "completions/mean_length": 10.0}
LOG = "".join(json.dumps({"step": step, **ROW}) + "\n" for step in range(1, 31)).encode()


def check(*arguments: str, stdin: bytes = b"", **options: object) -> tuple[int, str, str]:
    done = subprocess.run(
        [sys.executable, "-m", "grpodoctor", "check", "--exit-zero", *arguments],
        input=stdin,
        capture_output=True,
        check=False,
        timeout=60,
        **options,
    )
    return done.returncode, done.stdout.decode(), done.stderr.decode()


@pytest.mark.parametrize("name", sampled(["-", "/dev/stdin", "/dev/fd/0"], {"-"}))
@pytest.mark.parametrize("content", [LOG, gzip.compress(LOG)], ids=["plain", "gzip"])
def test_a_log_on_standard_input(name: str, content: bytes) -> None:
    code, shown, complaint = check(name, stdin=content)
    assert code == 0, complaint
    assert "standard input" in shown
    assert "(30 read)" in shown


def test_a_log_from_a_shell_substitution(tmp_path: Path) -> None:
    packed = tmp_path / "log.gz"
    packed.write_bytes(gzip.compress(LOG))
    done = subprocess.run(
        ["/bin/bash", "-c", f"{sys.executable} -m grpodoctor check --exit-zero <(zcat {packed})"],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    assert "(30 read)" in done.stdout


def test_a_document_on_standard_input() -> None:
    rows = [json.loads(line) for line in LOG.splitlines()]
    state = json.dumps({"best_metric": None, "log_history": rows}, indent=2)
    table = "\n".join([",".join(rows[0]), *(",".join(map(str, row.values())) for row in rows)])
    for document in (state, table):
        code, shown, complaint = check("-", stdin=document.encode())
        assert code == 0, complaint
        assert "(30 read)" in shown


def test_an_unknown_stream_is_named_as_the_user_named_it() -> None:
    code, _, complaint = check("-", stdin=b"hello\n")
    assert code == 2
    assert "(standard input)" in complaint


def test_an_empty_stream_is_one_line() -> None:
    code, _, complaint = check("-")
    assert code == 2
    assert complaint == "error: the stream is empty (-); pipe a log into the command\n"


@pytest.mark.slow
@pytest.mark.timeout(60)
def test_what_is_no_file_is_refused_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "socket"))
        for path, kind in (
            (tmp_path / "pipe", "a pipe"),
            (tmp_path / "socket", "a socket"),
            (Path("/dev/null"), "a device"),
        ):
            code, _, complaint = check(str(path))
            assert (code, len(complaint.splitlines())) == (2, 1)
            assert f"it is {kind}, not a file" in complaint


@pytest.mark.timeout(60)
@pytest.mark.parametrize("option", ["--config", "--run-config"])
def test_an_endless_settings_file_is_one_line(tmp_path: Path, option: str) -> None:
    log = tmp_path / "log.jsonl"
    log.write_bytes(LOG)
    code, _, complaint = check(str(log), option, "/dev/zero")
    assert (code, len(complaint.splitlines())) == (2, 1)
    assert "a device, not a file" in complaint


@pytest.mark.parametrize("name", ["config.yaml", "start.sh", "missing.toml"])
def test_an_unreadable_config_is_one_line_for_runs_of_any_origin(tmp_path: Path, name: str) -> None:
    log = tmp_path / "log.jsonl"
    log.write_bytes(LOG)
    if name != "missing.toml":
        (tmp_path / name).write_bytes(b"trainer --lr 1e-6 \0\0\n")
    for path in (log, Path(__file__).parents[1] / "data" / "run"):
        code, _, complaint = check(str(path), "--run-config", str(tmp_path / name))
        assert (code, len(complaint.splitlines())) == (2, 1)
        assert complaint.startswith("error: the config file cannot be read: ")


def test_a_defect_has_its_own_exit_code_and_no_traceback(tmp_path: Path) -> None:
    program = (
        "import sys\nfrom grpodoctor.cli import main\n"
        "def fail(name): raise KeyError('a\\x1b[31mb')\n"
        "main._load = fail\nsys.argv = ['grpodoctor', 'rule']\nmain.main()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    )
    [kept] = tmp_path.glob("grpodoctor-defect-*.txt")
    assert done.returncode == 3
    assert len(done.stderr.splitlines()) == 1
    assert "a defect in grpodoctor, KeyError" in done.stderr
    assert str(kept) in done.stderr
    assert "Traceback" in kept.read_text()


@pytest.mark.parametrize(
    ("fault", "line"),
    [
        ("MemoryError()", "not enough memory"),
        ("OSError(24, 'Too many open files', 'log')", "Too many open files (log)"),
        ("OSError(5, 'Input/output error')", "Input/output error (standard output)"),
        ('RuntimeError("can\'t start new thread")', "the system cannot start another thread"),
    ],
)
def test_a_fault_of_the_machine_is_no_defect(fault: str, line: str) -> None:
    program = (
        "import sys\nfrom grpodoctor.cli import main\n"
        f"def fail(name): raise {fault}\n"
        "main._load = fail\nsys.argv = ['grpodoctor', 'rule']\nmain.main()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1
    assert line in done.stderr
