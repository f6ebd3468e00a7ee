from pathlib import Path

import pytest

from grpodoctor.frameworks.row_keys import RowKeys
from grpodoctor.runs.crash import Crash
from grpodoctor.runs.log_formats.decoding.console_reader import Console
from grpodoctor.runs.log_formats.decoding.crashes import CrashTracker
from tests.runs.log_formats.console_text import VERL, bar

STEPS = "".join(f"{VERL.format(step=step, reward=0.5)}\n" for step in range(1, 5))
TRACE = 'Traceback (most recent call last):\n  File "train.py", line 3, in main\n    loss()\n'
OUT_OF_MEMORY = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 3.46 GiB."
ACTOR = "\x1b[36m(Actor pid=12)\x1b[0m "


def crash_in(text: str, directory: Path) -> Crash | None:
    path = directory / "train.log"
    path.write_text(text)
    reader = Console(path, RowKeys())
    reader.read()
    reader.read()
    return reader.crash


def on_ray(text: str) -> str:
    return "".join(f"{ACTOR}{line}\n" for line in text.splitlines())


ENDS = {
    "a GPU without memory": (f"{TRACE}{OUT_OF_MEMORY}\n", "gpu-memory", OUT_OF_MEMORY),
    "an actor of Ray": (on_ray(f"{TRACE}{OUT_OF_MEMORY}"), "gpu-memory", OUT_OF_MEMORY),
    "a rank of torchrun": (
        "".join(f"[rank1]: {line}\n" for line in f"{TRACE}ValueError: bad shape".splitlines()),
        "exception",
        "ValueError: bad shape",
    ),
    "the engine's logger": (
        f"ERROR 09-26 10:17:02 [core.py:700] {TRACE}"
        f"ERROR 09-26 10:17:02 [core.py:700] {OUT_OF_MEMORY}\n"
        f"{TRACE}vllm.v1.engine.exceptions.EngineDeadError: EngineCore encountered an issue.\n",
        "gpu-memory",
        OUT_OF_MEMORY,
    ),
    "the wrapper of Ray": (
        f"{TRACE}ray.exceptions.RayTaskError(ValueError): ray::main_task() (pid=7)\n"
        "ValueError: bad shape\n",
        "exception",
        "ValueError: bad shape",
    ),
    "only a wrapper": (
        f"{TRACE}ray.exceptions.ActorDiedError: The actor died unexpectedly.\n",
        "lost-process",
        "ray.exceptions.ActorDiedError: The actor died unexpectedly.",
    ),
    "the launcher after the rank": (
        f"{TRACE}ValueError: bad shape\n{TRACE}torch.distributed.elastic.multiprocessing.errors."
        "ChildFailedError: \n=====\ntrain.py FAILED\n",
        "exception",
        "ValueError: bad shape",
    ),
    "a killed rank": (
        f"{TRACE}torch.distributed.elastic.multiprocessing.errors.ChildFailedError: \n"
        "  traceback : Signal 9 (SIGKILL) received by PID 659783\n",
        "killed",
        "Signal 9 (SIGKILL) received by PID 659783",
    ),
    "a shell": ("run.sh: line 3:   712 Killed                  python train.py\n", "killed",
                "Killed"),
    "a kill behind a bar": (f"{bar(3)}{bar(4)}Killed\n", "killed", "Killed"),
    "a collective": (
        "[rank3]:[E1103 10:00:00 ProcessGroupNCCL.cpp:616] [Rank 3] Watchdog caught collective "
        "operation timeout: WorkNCCL(SeqNum=12, OpType=ALLREDUCE, Timeout(ms)=600000)\n"
        "terminate called after throwing an instance of 'c10::DistBackendError'\n",
        "collective-timeout",
        "NCCL: Watchdog caught collective operation timeout (ALLREDUCE)",
    ),
    "a full disk": (f"{TRACE}OSError: [Errno 28] No space left on device\n", "disk-full",
                    "OSError: [Errno 28] No space left on device"),
    "the memory of the machine": (
        f"{TRACE}ray.exceptions.OutOfMemoryError: Task was killed due to the node running low on "
        "memory.\n",
        "host-memory",
        "ray.exceptions.OutOfMemoryError: Task was killed due to the node running low on memory.",
    ),
    "a kernel": (
        f"{TRACE}RuntimeError: CUDA error: an illegal memory access was encountered\n",
        "gpu-fault",
        "RuntimeError: CUDA error: an illegal memory access was encountered",
    ),
    "after the bar's own line": (
        f"{bar(4)}{TRACE}KeyError: 'answer'\n", "exception", "KeyError: 'answer'",
    ),
    "Ctrl-C in a run that hangs": (
        f"{TRACE}{OUT_OF_MEMORY}\n{TRACE}KeyboardInterrupt\n", "gpu-memory", OUT_OF_MEMORY,
    ),
    "what the job prints after it": (
        f"{TRACE}{OUT_OF_MEMORY}\n" + "wandb: reward ▁▂▃\n| GPU 0 |\n" * 60, "gpu-memory",
        OUT_OF_MEMORY,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", ENDS)
def test_the_error_with_which_a_log_ends(name: str, tmp_path: Path) -> None:
    end, kind, message = ENDS[name]
    crash = crash_in(STEPS + end, tmp_path)
    assert crash is not None
    assert (crash.kind, crash.message) == (kind, message)


@pytest.mark.parametrize(
    "end",
    [
        "",
        f"{TRACE}{OUT_OF_MEMORY}\n{VERL.format(step=5, reward=1)}\n",
        f"{bar(3)}\n{TRACE}{OUT_OF_MEMORY}\n{bar(4)}\n",
        f"{TRACE}ValueError: no answer\n" + "The plot failed, so the script is changed.\n" * 40,
        f"{TRACE}KeyboardInterrupt\n{TRACE}BrokenPipeError: [Errno 32] Broken pipe\n",
        f"{TRACE}torch.distributed.elastic.multiprocessing.api.SignalException: Process 11 got "
        "signal: 15\n",
        f"Exception ignored in: <function Run.__del__>\n{TRACE}ImportError: shutting down\n",
        f"Exception in thread NetStatThr:\n{TRACE}BrokenPipeError: [Errno 32] Broken pipe\n",
        f"Error in atexit._run_exitfuncs:\n{TRACE}ValueError: closed\n",
        'Traceback (most recent call last):\n  File "<string>", line 3, in f\nNameError: x\n',
        '"stderr": "Traceback (most recent call last):\\n  File \\"a.py\\"\nValueError: x\n',
        "[W1103 ProcessGroupNCCL.cpp:1496] Warning: WARNING: destroy_process_group() was not "
        "called before program exit\n",
        "a.py:3: DeprecationWarning: this raises ValueError soon\n",
        f"The model answers: {OUT_OF_MEMORY}\nValueError: is what I would expect\n",
        "Killed processes are started again.\n",
        f"Training completed! Stopping it\nKilled\n{TRACE}JobException: trainer COMPLETED\n",
    ],
    ids=["nothing", "more steps", "the bar goes on", "prose", "Ctrl-C", "asked to stop",
         "finalizer", "thread", "atexit", "code of a response", "a quoted traceback",
         "destroy_process_group", "a warning", "a response", "a sentence",
         "completed"],
)  # fmt: skip
def test_what_is_no_crash(end: str, tmp_path: Path) -> None:
    assert crash_in(STEPS + end, tmp_path) is None


def test_the_line_counts_blank_lines(tmp_path: Path) -> None:
    crash = crash_in(f"{STEPS}\n\n{TRACE}{OUT_OF_MEMORY}\n", tmp_path)
    assert crash is not None
    assert crash.line == 4 + 2 + 3 + 1
    text = (tmp_path / "train.log").read_text().splitlines()
    assert text[crash.line - 1] == OUT_OF_MEMORY


def test_the_first_of_several_equal_errors_counts(tmp_path: Path) -> None:
    crash = crash_in(STEPS + f"{TRACE}{OUT_OF_MEMORY}\n" * 3, tmp_path)
    assert crash is not None
    assert crash.line == 8


def test_a_tracker_keeps_nothing_of_the_lines() -> None:
    tracker = CrashTracker()
    for number in range(20_000):
        tracker.add(f"{'x' * 100} ValueError: {number}", number=number)
    state = vars(tracker)
    assert all(not isinstance(value, list | dict | set) for value in state.values())
    assert tracker.at_end is None
