"""Starting engine programs, watching over them and ending them with all that they have started.

A program runs in the Python that has its engine, in a process group of its own, so that Ctrl-C is
the probe's, which then ends the program. Its output goes straight into a log. As long as the log
or what it writes grows it is alive, however long it takes; silence for the spec's time-out ends it.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from grpodoctor.errors import EngineError
from grpodoctor.probe.inputs.checksums import HUB_NAME, local_model
from grpodoctor.probe.inputs.engine_spec import EngineSpec
from grpodoctor.probe.inputs.interpreters import check_installed, python_of
from grpodoctor.support.programs import program
from grpodoctor.support.safe_text import printable

MARK = "GRPODOCTOR_PROBE"
"""Set in the environment of all that a probe starts, to its folder: by it they are found again,
also those that left the process group, as torchrun's workers do, or outlived a killed probe."""

_POLL_SECONDS = 0.1
_GRACE_SECONDS = 10.0
"""Between asking a program to end and ending it."""
_MOST_LOG_BYTES = 512 << 20
"""An engine that prints more than this is not well."""
_MOST_ANSWER_BYTES = 16 << 20
_TAIL_BYTES = 64 << 10
_LINE_CHARACTERS = 240
_COMPLAINT = re.compile(
    r"\b[\w.]*(?:Error|Exception)\b|\bKilled\b|[Oo]ut of memory|\bSignal \d+ \(SIG"
    r"|\bdied unexpectedly"
)
_EMPTY = re.compile(r"^raise |\.ChildFailedError:$|\d%\|")
"""A traceback's line of code, torchrun's word for any failure, and bars of progress: they do not
say how something ended."""
_STAMP = re.compile(
    r"^(?:\([^()]{1,60}\) )?(?:ERROR|WARNING|INFO) [\d:. -]{5,30}\[[^\]]{1,80}\] ?"
    r"|^\[rank\d+\]: ?"
)
"""What vLLM and torch write before a line: which worker, when, and where in its source."""
_COLOUR = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]")

Ending = Literal["ended", "silent", "out_of_time", "flooded"]


@dataclass(frozen=True, slots=True)
class Launch:
    """What is started, and where it shows signs of life."""

    command: tuple[str, ...]
    log: Path
    outputs: tuple[Path, ...]
    """Folders that it writes shards to."""
    silence: float
    """Seconds without any sign of life after which it is ended."""
    deadline: float
    """On the monotonic clock; infinite where there is none."""
    mark: str


@dataclass(frozen=True, slots=True)
class Ended:
    """How a program has ended."""

    how: Ending
    code: int
    """The exit code; minus the signal's number where one ended it."""

    def told(self, timeout: float) -> str:
        """A clause about it."""
        if self.how == "silent":
            return f"gave no sign of life for {timeout:g} s and was ended"
        if self.how == "flooded":
            return f"printed more than {_MOST_LOG_BYTES >> 20} MiB and was ended"
        if self.how == "out_of_time":
            return "was ended when the time was over"
        if self.code < 0:
            return f"was killed by {_signal_name(-self.code)}"
        return f"ended with exit code {self.code}"


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def command_of(spec: EngineSpec, request: Path) -> tuple[str, ...]:
    """What is to be started for an engine.

    Raises:
        EngineError: if its Python does not exist or is none, or there is no such program.
    """
    path = _program_of(spec)
    if spec.launcher:
        return *_launcher_of(spec), str(path), str(request)
    python = python_of(spec)
    ranks = _ranks(spec)
    if spec.engine == "fsdp" or ranks > 1:
        torchrun = ("-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}")
        return python, *torchrun, str(path), str(request)
    return python, str(path), str(request)


def check_start(spec: EngineSpec) -> None:
    """Refuse what cannot start, as far as that can be seen without starting anything.

    Raises:
        EngineError: if its Python, program or launcher does not exist, its Python lacks the
            engine, or there is no such model.
    """
    command_of(spec, Path("request.json"))
    if spec.launcher:  # on other machines, perhaps
        return
    if spec.engine != "program":
        check_installed(spec)
    if spec.engine in ("openai_server", "program") or Path(spec.model).exists():
        return
    is_offline = os.environ.get("HF_HUB_OFFLINE", "").upper() in ("1", "ON", "YES", "TRUE")
    is_name = spec.engine not in ("llama_cpp", "recorded") and HUB_NAME.fullmatch(spec.model)
    if not is_name or (is_offline and local_model(spec.model) is None):
        cached = ", nor in the hub's cache, and HF_HUB_OFFLINE is set" if is_name else ""
        raise EngineError(
            f"there is nothing at {printable(spec.model, 200)}{cached}",
            where=spec.label,
            remedy="check the path" + (", or download the model first" if is_name else ""),
        )


def _launcher_of(spec: EngineSpec) -> list[str]:
    try:
        words = shlex.split(spec.launcher)
    except ValueError:  # a quote that is not closed
        words = []
    if not words or shutil.which(words[0]) is None:
        raise EngineError(
            f"there is no program {printable(words[0] if words else spec.launcher, 200)}",
            where=f"launcher= of {spec.label}",
            remedy="name one that is on the PATH",
        )
    return words


def _program_of(spec: EngineSpec) -> Path:
    if spec.engine != "program":
        return program("probes", f"engine_{spec.engine}.py")
    path = Path(spec.model)
    if not path.is_file():
        raise EngineError(
            "there is no such engine program", where=spec.model, remedy="write program:PATH?model=…"
        )
    return path


def model_of(spec: EngineSpec) -> tuple[str, dict[str, Any]]:
    """The model and the options that the program is told."""
    options = dict(spec.options)
    return (str(options.pop("model", "")) if spec.engine == "program" else spec.model), options


def _ranks(spec: EngineSpec) -> int:
    """Processes under torchrun: as given, else as many as the layout asks for."""
    if spec.engine != "fsdp" or spec.processes > 1:
        return spec.processes
    degrees = (spec.options.get(name, 1) for name in ("fsdp", "tensor_parallel"))
    product = 1
    for degree in degrees:
        product *= degree if isinstance(degree, int) else 1
    return max(1, product)


def launch(order: Launch, watch: Callable[[], None] = lambda: None) -> Ended:
    """Start a program and wait for its end; nothing that it has started is left afterwards.

    Args:
        order: what and how long.
        watch: called several times a second meanwhile; what it raises ends the program.

    Raises:
        EngineError: if it cannot be started.
    """
    order.log.parent.mkdir(parents=True, exist_ok=True)
    process = None
    try:
        process = _started(order)
        how = _wait(process, order, watch)
    finally:
        # An interruption may come in the middle of any of it, more than once.
        try:
            if process is not None:
                _end(process)
        finally:
            end_marked(order.mark)
    return Ended(how, process.returncode)


def _started(order: Launch) -> subprocess.Popen[bytes]:
    with order.log.open("ab") as log:
        try:
            return subprocess.Popen(  # noqa: S603 - the user's own engine
                order.command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=os.environ | {MARK: order.mark, "PYTHONUNBUFFERED": "1"},
                process_group=0,
            )
        except OSError as error:
            raise EngineError(
                f"the engine cannot be started: {error.strerror}", where=order.command[0]
            ) from error


def _wait(process: subprocess.Popen[bytes], order: Launch, watch: Callable[[], None]) -> Ending:
    signs, last = _signs(order), time.monotonic()
    while True:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_POLL_SECONDS)
            return "ended"
        watch()
        now, fresh = time.monotonic(), _signs(order)
        if fresh != signs:
            signs, last = fresh, now
        if fresh[0] > _MOST_LOG_BYTES:
            return "flooded"
        if now > order.deadline:
            return "out_of_time"
        if now - last > order.silence:
            return "silent"


def _signs(order: Launch) -> tuple[int, int]:
    """What grows while a program is alive: its log, and the number of its files."""
    size = order.log.stat().st_size
    files = sum(1 for folder in order.outputs if folder.is_dir() for _ in os.scandir(folder))
    return size, files


def _end(process: subprocess.Popen[bytes]) -> None:
    """End the program and its group, gently first."""
    try:
        _signal(process, signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_GRACE_SECONDS)
    finally:  # those of the group too that have outlived the first
        _signal(process, signal.SIGKILL)
        process.wait()


def _signal(process: subprocess.Popen[bytes], number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, number)


def end_marked(mark: str) -> int:
    """End what bears a mark and still lives, wherever it went; returns how many there were.

    Where there is no /proc none is found.
    """
    found = _kill(_marked(mark))
    deadline = time.monotonic() + _GRACE_SECONDS
    while any(map(_lives, found)) and time.monotonic() < deadline:
        time.sleep(_POLL_SECONDS)
        found |= _kill(_marked(mark))  # with what they have started meanwhile
    return len(found)


def _kill(numbers: Iterable[int]) -> set[int]:
    killed = set(numbers)
    for number in killed:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(number, signal.SIGKILL)
    return killed


def _lives(number: int) -> bool:
    """Whether a process has its memory still; one that nobody has waited for has not."""
    try:
        status = Path(f"/proc/{number}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False
    return status.rpartition(")")[2].split()[0] not in "ZX"


def _marked(mark: str) -> Iterator[int]:
    """What bears a mark, and its process groups: vLLM's workers overwrite their environment."""
    wanted = f"{MARK}={mark}".encode()
    found = [int(entry.name) for entry in Path("/proc").glob("[0-9]*") if _bears(entry, wanted)]
    groups = {_group_of(number) for number in found} - {os.getpgrp(), 0}
    for entry in Path("/proc").glob("[0-9]*") if found else ():
        number = int(entry.name)
        if (number in found or _group_of(number) in groups) and number != os.getpid():
            yield number


def _bears(entry: Path, wanted: bytes) -> bool:
    try:
        return wanted in (entry / "environ").read_bytes().split(b"\0")
    except OSError:
        return False


def _group_of(number: int) -> int:
    """The process group of a process; 0 if it is gone."""
    try:
        return os.getpgid(number)
    except (ProcessLookupError, PermissionError):
        return 0


def read_answer(path: Path) -> Mapping[str, Any]:
    """What a program has answered; empty if there is nothing that can be read."""
    try:
        if path.stat().st_size > _MOST_ANSWER_BYTES:
            return {}
        answer = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return answer if isinstance(answer, dict) else {}


def complaint_of(log: Path) -> str:
    """The lines of a log's end that say what went wrong, on one line, harmless and bounded.

    The last lines that speak of an error, since the very last ones often do not: vLLM's say that
    the root cause stands above.
    """
    lines = last_lines(log, 400)
    return " | ".join(_errors(lines) or _distinct(lines)[-3:])


def _errors(lines: Sequence[str]) -> list[str]:
    """The last few of some lines that speak of an error."""
    return [line for line in _distinct(lines) if _COMPLAINT.search(line)][-3:]


def _distinct(lines: Sequence[str]) -> list[str]:
    """Without what stands before them: several workers say the same, and say it often."""
    bare = (_STAMP.sub("", line) for line in lines)
    return list(dict.fromkeys(line for line in bare if not _EMPTY.search(line)))


def last_lines(log: Path, count: int) -> list[str]:
    """The last lines of a log that are not blank, printable and cut."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, log.stat().st_size - _TAIL_BYTES))
            text = file.read(_TAIL_BYTES).decode("utf-8", "replace")
    except OSError:
        return []
    recent = text.splitlines()[-count * 2 :]
    lines = [" ".join(_COLOUR.sub("", line).split()) for line in recent]
    return [printable(line, _LINE_CHARACTERS) for line in lines if line][-count:]


def refusal_in(answer: Mapping[str, Any]) -> tuple[str, str] | None:
    """What a program has said about why it cannot, and what to do."""
    error = answer.get("error")
    if not isinstance(error, Mapping):
        return None
    return printable(str(error.get("what", "")), 500), printable(str(error.get("remedy", "")), 500)


def failure(spec: EngineSpec, log: Path, ended: Ended, answer: Mapping[str, Any]) -> EngineError:
    """The error that says why an engine has not done what it was asked for."""
    refusal = refusal_in(answer)
    if refusal is not None:
        what, remedy = refusal
        # What an engine raises to its program is often not why: a worker has said that.
        others = [line for line in _errors(last_lines(log, 400)) if line[-80:] not in what]
        why = f"; its log says: {' | '.join(others)}" if others else ""
        return EngineError(f"{spec.label}: {what}{why}", where=f"log: {log}", remedy=remedy)
    told = f"{spec.label} {ended.told(spec.timeout)}"
    if ended.how == "ended" and ended.code == 0:
        told += " but has not answered"
    complaint = complaint_of(log)
    remedy = "look at its log"
    if ended.code == -signal.SIGKILL:
        remedy = "look at its log; what takes more memory than there is is killed so"
    if ended.how == "silent":
        remedy = "look at its log; if it only needs longer, give the engine timeout=SECONDS"
    return EngineError(
        f"{told}; its last lines: {complaint}" if complaint else f"{told} without a word",
        where=f"log: {log}",
        remedy=remedy,
    )
