"""Faults for a real training with TRL: how each is planted, and what comes of it.

The table in `docs/hooks.md` shows the titles and outcomes; a test compares them.
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import signal
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

STEPS = 5
PLANTED = 2
"""The fault is planted after this step."""
_WAIT_SECONDS = 60

Patch = pytest.MonkeyPatch


@dataclass(frozen=True)
class Fault:
    """A fault of the instruments or of their surroundings."""

    title: str
    outcome: str
    plant: Callable[[Any, Any, Patch], object] | None = None
    """Called after step `PLANTED` with the trainer and the attachment."""
    prepare: Callable[[Any, Patch], object] | None = None
    """Called before `attach` with the trainer."""
    changes_texts: bool = False
    """Whether `prepare` also changes what is rewarded."""
    options: dict[str, Any] = field(default_factory=dict)
    """Of `attach`."""
    settings: dict[str, Any] = field(default_factory=dict)
    """Of the trainer."""
    recorded: int = STEPS
    """Steps that can be read afterwards, at least."""
    says: str = ""
    """Part of the one warning line; empty if nothing is logged."""


def hook_of(attachment: Any) -> Any:
    return attachment._hook


def wait_for_steps(attachment: Any, count: int) -> None:
    """Wait until so many steps are on disk."""
    deadline, steps = time.monotonic() + _WAIT_SECONDS, attachment.run_dir / "steps.jsonl"
    while steps.read_bytes().count(b"\n") < count:
        assert time.monotonic() < deadline
        time.sleep(0.01)


# Faults of the record


def remove_directory(_trainer: Any, attachment: Any, _patch: Patch) -> None:
    wait_for_steps(attachment, PLANTED)
    shutil.rmtree(attachment.run_dir, ignore_errors=True)


def kill_writer(_trainer: Any, attachment: Any, _patch: Patch) -> None:
    wait_for_steps(attachment, PLANTED)
    os.kill(hook_of(attachment)._recorder._writer.process.pid, signal.SIGKILL)


def fill_disk(_trainer: Any, attachment: Any, _patch: Patch) -> None:
    """No file of the writer process may grow any more, as on a full disk."""
    wait_for_steps(attachment, PLANTED)
    size = (attachment.run_dir / "steps.jsonl").stat().st_size
    writer = hook_of(attachment)._recorder._writer.process.pid
    resource.prlimit(writer, resource.RLIMIT_FSIZE, (size, size))


def replace_rollouts(_trainer: Any, attachment: Any, _patch: Patch) -> None:
    """A file stands where the parquet files of the responses go."""
    wait_for_steps(attachment, PLANTED)
    rollouts = attachment.run_dir / "rollouts"
    shutil.rmtree(rollouts)
    rollouts.write_bytes(b"")


def close_descriptors(_trainer: Any, attachment: Any, _patch: Patch) -> None:
    """The numbers of the recorder's lock and connection name another file from now on."""
    recorder = hook_of(attachment)._recorder
    assert recorder.flush()
    other = os.open(os.devnull, os.O_RDWR)
    for own in (recorder._opened.lock.fd, recorder._writer._wire._end.fileno()):
        os.dup2(other, own)
    os.close(other)


def remove_mailbox(_trainer: Any, attachment: Any, _patch: Patch) -> None:
    mailbox = attachment.run_dir / "mailbox"
    shutil.rmtree(mailbox, ignore_errors=True)
    mailbox.write_bytes(b"")


# Faults of requests


def forge_requests(_trainer: Any, attachment: Any, _patch: Patch) -> None:
    mailbox = attachment.run_dir / "mailbox"
    mailbox.mkdir(exist_ok=True)
    (mailbox / "0000000001.json").write_bytes(b'{"kind":"apply","changes":{"learning_rate":1}')
    (mailbox / "0000000002.json").write_bytes(b"\xff" * 100)
    (mailbox / "0000000003.json").symlink_to("/etc/passwd")


def flood_mailbox(_trainer: Any, attachment: Any, _patch: Patch) -> None:
    mailbox = attachment.run_dir / "mailbox"
    mailbox.mkdir(exist_ok=True)
    for number in range(3000):
        request = {"id": str(number), "kind": "apply", "changes": {"no_such_knob": number}}
        (mailbox / f"{number:010}.json").write_text(json.dumps(request), encoding="utf-8")


def break_knob(_trainer: Any, attachment: Any, _patch: Patch) -> None:
    hook_of(attachment).knobs.read_only("group_size", lambda: 1 / 0)


def kill_observer(_trainer: Any, attachment: Any, _patch: Patch) -> None:
    process = hook_of(attachment)._observer._process
    process.kill()
    process.wait(30)


# Faults of the taps


def break_tap(_trainer: Any, _attachment: Any, patch: Patch) -> None:
    """As a version would that names something otherwise."""
    from grpodoctor.hooks.trl import private_names

    def gone(_: Any) -> None:
        raise AttributeError("'GRPOTrainer' object has no attribute 'eos_token_ids'")

    patch.setattr(private_names, "end_ids", gone)


def rename_metrics(_trainer: Any, _attachment: Any, patch: Patch) -> None:
    from grpodoctor.hooks.trl import private_names

    def gone(_: Any) -> None:
        raise KeyError("train")

    patch.setattr(private_names, "training_metrics", gone)


def raise_in_rule(_trainer: Any, patch: Patch) -> None:
    from grpodoctor.rules.instruments.failed_instrument import FailedInstrument

    patch.setattr(FailedInstrument, "examine", lambda *_: 1 / 0)


def forbid_threads(_trainer: Any, patch: Patch) -> None:
    """As under a limit of processes: none of our threads starts."""
    start = threading.Thread.start

    def refuse(thread: threading.Thread) -> None:
        if "grpodoctor" in thread.name:
            raise RuntimeError("can't start new thread")
        start(thread)

    patch.setattr(threading.Thread, "start", refuse)


def attach_again(trainer: Any, attachment: Any, _patch: Patch) -> None:
    import grpodoctor

    assert grpodoctor.attach(trainer) is attachment


# Faults of the surroundings


def turn_clock_back(_trainer: Any, _attachment: Any, patch: Patch) -> None:
    earlier = time.time() - 1e6
    patch.setattr(time, "time", lambda: earlier)


def decode_as(change: Callable[[str], str]) -> Callable[[Any, Patch], None]:
    """Texts of responses are changed after decoding; tokens stay as they are."""

    def prepare(trainer: Any, patch: Patch) -> None:
        tokenizer = trainer.processing_class
        decode = tokenizer.batch_decode

        def changed(*args: Any, **kwargs: Any) -> list[str]:
            return [change(text) for text in decode(*args, **kwargs)]

        patch.setattr(tokenizer, "batch_decode", changed, raising=False)

    return prepare


FAULTS = {
    "rule": Fault(
        "a rule raises",
        "the report lists it under `defects`; all other rules run",
        prepare=raise_in_rule,
    ),
    "disk": Fault(
        "the disk is full, or a quota is used up",
        "recording ends with one warning line; the steps before it can be read",
        fill_disk,
        recorded=PLANTED,
        says="File too large",
    ),
    "directory": Fault(
        "the run directory is removed",
        "recording ends with one warning line",
        remove_directory,
        recorded=0,
        says="the run directory was removed",
    ),
    "read-only": Fault(
        "the directory cannot be written",
        "one warning line; the training runs without a record",
        options={"run_dir": Path("/proc/grpodoctor")},
        recorded=0,
        says="is not recorded",
    ),
    "unreadable": Fault(
        "a file is in the way of the directory",
        "one warning line; the training runs without a record",
        options={"run_dir": Path("/etc/passwd/grpodoctor")},
        recorded=0,
        says="is not recorded",
    ),
    "writer": Fault(
        "the writer process is killed",
        "recording ends with one warning line; the steps before it can be read",
        kill_writer,
        recorded=PLANTED,
        says="SIGKILL",
    ),
    "rollouts": Fault(
        "the file of the responses cannot be written",
        "recording ends with one warning line; the steps before it can be read",
        replace_rollouts,
        recorded=PLANTED,
        says="recording ended",
    ),
    "descriptors": Fault(
        "other code of the script closes all descriptors",
        "its own files are left alone; recording ends with one warning line; the steps before it "
        "can be read",
        close_descriptors,
        recorded=PLANTED,
        says="other code of this process closed",
    ),
    "thread": Fault(
        "no thread can be started",
        "one warning line; the training runs without a record",
        prepare=forbid_threads,
        recorded=0,
        says="can't start new thread",
    ),
    "forged": Fault(
        "a forged or damaged file in the mailbox",
        "refused in the journal; no knob changes",
        forge_requests,
    ),
    "flood": Fault(
        "thousands of requests in the mailbox",
        "32 are read at each step and refused in the journal; no knob changes",
        flood_mailbox,
    ),
    "mailbox": Fault(
        "a file is in the way of the mailbox",
        "requests are off; the steps are recorded",
        remove_mailbox,
    ),
    "knob": Fault(
        "a knob's getter or setter raises",
        "knobs are off, or the request is refused; other knobs of the request are restored",
        break_knob,
        says="knobs failed",
    ),
    "observer": Fault(
        "the process that applies remedies is killed",
        "one warning line; the steps are recorded without treatment",
        kill_observer,
        options={"apply": "safe"},
        says="the observer process ended",
    ),
    "tap": Fault(
        "a name of the framework is gone in the middle of a run",
        "that tap is off, with one warning line; the steps are recorded without its values",
        break_tap,
        says="rollouts failed",
    ),
    "metrics": Fault(
        "the framework's own metrics are gone",
        "they are off, with one warning line; the steps are recorded from the tensors",
        rename_metrics,
        says="values of TRL failed",
    ),
    "second": Fault(
        "a second `attach`",
        "one warning line; the first connection stays",
        attach_again,
        says="already attached",
    ),
    "clock": Fault(
        "the clock jumps",
        "the steps are recorded with the wrong time",
        turn_clock_back,
    ),
    "long": Fault(
        "responses of a megabyte each",
        "the steps are recorded",
        prepare=decode_as(lambda text: text * 150_000),
        changes_texts=True,
    ),
    "surrogates": Fault(
        "text that is not valid Unicode",
        "the steps are recorded; the broken characters are replaced",
        prepare=decode_as(lambda text: f"\udcff{text}\x00\ud800"),
        changes_texts=True,
    ),
    "forks": Fault(
        "the data loader forks workers",
        "they record nothing; the steps are recorded once",
        settings={"dataloader_num_workers": 2},
    ),
}
"""Faults after which the training ends, with the weights it would have without grpodoctor."""

OTHERS = {
    "the reward function raises": "the exception passes unchanged; its step is not recorded",
    "rewards are NaN": "they are counted, not summed; the steps are recorded",
    "SIGTERM, or `kill -9`": "all steps but the one in flight can be read",
    "a rank is killed": "the training fails as it would; the steps before it can be read",
    "a rank records nothing": "after four steps, steps are recorded without its part, with one "
    "warning line",
    "the ranks' store is gone": "rank 0 records its own responses, with one warning line",
    "a method of the framework has another signature": "no tap is put in place; the run is "
    "recorded from its log, and one warning line names what is missing",
}
"""Faults of the training itself, and of several ranks."""
