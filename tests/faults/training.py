"""Faults during a training: in its recorder, its writer process, its checkpoints, its mailbox."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any, ClassVar

import orjson

from grpodoctor.cli.main import main
from grpodoctor.errors import GrpodoctorError
from grpodoctor.runs.reading.native_run import read_run
from grpodoctor.runs.recording.recorder import Recorder
from grpodoctor.runs.records import MAILBOX
from grpodoctor.runs.rollouts import read_rollouts
from grpodoctor.trainer.config.train_config import load_config
from grpodoctor.trainer.loop import Trainer
from grpodoctor.trainer.model import checkpoint
from grpodoctor.treatment.mailbox import Inbox, Mailbox, Request
from tests.faults.harness import (
    FILE_FAULTS,
    MEMORY_FAULTS,
    PROCESS_FAULTS,
    BrokenPromiseError,
    Ending,
    Harness,
    Scenario,
    in_helper,
)
from tests.faults.shim import armed, arming

STEPS = 3
SETTINGS = (
    *("threads=1", "model.warm_start_steps=30", f"steps={STEPS}", "evaluation.every=0"),
    *("rollout.prompts_per_batch=2", "rollout.group_size=4", "rollout.max_length=8"),
    # A reward for short responses gives a gradient even if no answer is right.
    *("overlong.kind=soft-punishment", "overlong.buffer=7"),
    *("optimizer.updates_per_batch=1", "checkpoint.every=1", "checkpoint.keep=2"),
)
_RECORDED = "recorded completely"
_UNRECORDED = "training unharmed, recording ends with one warning"
_REFUSED = "refused at the start with one line, exit code 2"
_ALL_CHECKPOINTS = "every checkpoint written"
_NO_CHECKPOINT = "training unharmed, one warning, next checkpoint written"
_NO_LAST_CHECKPOINT = "training unharmed, one warning, earlier checkpoint loads"


def warm_up(home: Path) -> None:
    """Import what a training imports, without a thread: forks would lack it."""
    Trainer(load_config(assignments=[*SETTINGS, "record.enabled=false"]), home / "warm").run()
    shutil.rmtree(home / "warm")


class Training(Scenario):
    """`grpodoctor train`: three steps with a checkpoint each."""

    reference: ClassVar[dict[str, bytes]] = {}
    """Files of the checkpoints of an undisturbed training, by step and name."""
    run_dir: ClassVar[Path]
    """The directory of that training."""

    @classmethod
    def remember(cls, harness: Harness) -> None:
        """Train once without a fault."""
        scenario = RecorderScenario("undisturbed")
        home, ending = harness.undisturbed(scenario)
        Training.run_dir = home / "run"
        cls.reference.update(_checkpoint_files(Training.run_dir))
        assert harness.judged(scenario, home, ending) == _RECORDED, ending

    settings = SETTINGS

    def prepare(self, home: Path) -> None:
        (home / "run").mkdir()

    def run(self, home: Path) -> None:
        acknowledged = os.open(home / "acknowledged", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        _follow_calls(lambda line: os.write(acknowledged, line.encode() + b"\n"))
        options = [part for setting in self.settings for part in ("--set", setting)]
        sys.argv = ["grpodoctor", "train", "--run-dir", str(home / "run"), *options]
        main()

    def check_kept(self, home: Path) -> None:
        _check_acknowledged(home / "run", _acknowledged(home))

    def judge(self, home: Path, ending: Ending) -> str:
        run_dir, acknowledged = home / "run", _acknowledged(home)
        _check_acknowledged(run_dir, acknowledged)
        if ending.code == 2:
            if acknowledged:
                raise BrokenPromiseError(f"ended after {acknowledged}: {ending.stderr}")
            return _REFUSED
        if ending.code != 0:
            raise BrokenPromiseError(f"exit code {ending.code}: {ending.stderr}")
        return self.judge_complete(run_dir, ending)

    def judge_complete(self, run_dir: Path, ending: Ending) -> str:
        """The outcome of a training that took all its steps."""
        last = f"{STEPS}/model.safetensors"
        if _checkpoint_files(run_dir).get(last) != self.reference.get(last, b""):
            raise BrokenPromiseError("the weights differ from the undisturbed training's")
        if "recording ended" in ending.stderr:
            _check_one(ending.stderr, "recording ended")
            return _UNRECORDED
        steps = [record.step for record in read_run(run_dir).steps]
        if steps != list(range(1, STEPS + 1)):
            raise BrokenPromiseError(f"no warning, but steps {steps}: {ending.stderr}")
        for step in steps:
            if len(read_rollouts(run_dir, step)) != 8:
                raise BrokenPromiseError(f"no warning, but no rollouts of step {step}")
        if not any(event.kind == "finished" for event in read_run(run_dir).events):
            raise BrokenPromiseError("no warning, but the end is not in the journal")
        return _RECORDED


def _follow_calls(acknowledge: Callable[[str], object]) -> None:
    """Let calls without a path count in the recorder; note each completed step and checkpoint."""
    recorder: Any = Recorder
    for name in ("_start", "_work", "event", "catch_up", "close"):
        setattr(recorder, name, arming(getattr(recorder, name)))
    recorder.open = classmethod(arming(recorder.open.__func__))
    recorder.step = _acknowledging_lines(recorder.step, acknowledge)
    trainer: Any = Trainer
    trainer._save = _acknowledging_checkpoints(trainer._save, acknowledge)
    inbox: Any = Inbox
    inbox.take = arming(inbox.take)


def _acknowledging_lines(
    step: Callable[..., None], acknowledge: Callable[[str], object]
) -> Callable[..., None]:
    @wraps(step)
    def call(self: Any, number: int, *args: Any, **kwargs: Any) -> None:
        with armed():
            step(self, number, *args, **kwargs)
        if self.failure is None and not self._late and not self._dropped and number > 1:
            acknowledge(f"line {number - 1}")

    return call


def _acknowledging_checkpoints(
    save: Callable[[Any], None], acknowledge: Callable[[str], object]
) -> Callable[[Any], None]:
    @wraps(save)
    def call(self: Any) -> None:
        save(self)
        if self.is_saved and self.done:
            acknowledge(f"checkpoint {self.done}")

    return call


def _acknowledged(home: Path) -> list[str]:
    return (home / "acknowledged").read_text().split("\n")[:-1]


def _checkpoint_files(run_dir: Path) -> dict[str, bytes]:
    """The tensors of all checkpoints; a state contains times of day and file paths."""
    return {
        f"{int(path.name[-6:])}/{file.name}": file.read_bytes()
        for path in checkpoint.checkpoints(run_dir)
        for file in sorted(path.glob("*.safetensors"))
    }


def _check_acknowledged(run_dir: Path, acknowledged: list[str]) -> None:
    """Check that what was on disk at some time still is, and that a resume could take it."""
    lines = {int(each.split()[1]) for each in acknowledged if each.startswith("line")}
    if lines:
        recorded = {record.step for record in read_run(run_dir).steps}
        if lines - recorded:
            raise BrokenPromiseError(f"lines {lines - recorded} were acknowledged and are lost")
    saved = sorted({int(each.split()[1]) for each in acknowledged if each.startswith("check")})
    files = _checkpoint_files(run_dir)
    for step in saved[-1:]:
        expected = {
            name: content
            for name, content in Training.reference.items()
            if int(name.partition("/")[0]) == step
        }
        if any(files.get(name) != content for name, content in expected.items()):
            raise BrokenPromiseError(f"checkpoint {step} was acknowledged and is lost")
    if saved:
        try:
            done = checkpoint.steps_done(run_dir)
        except GrpodoctorError as error:
            raise BrokenPromiseError(f"no resume is possible: {error}") from None
        if done < saved[-1] - 1:
            raise BrokenPromiseError(f"a resume starts at {done}, although {saved} were saved")


def _check_one(stderr: str, text: str) -> None:
    lines = [line for line in stderr.splitlines() if text in line]
    if len(lines) != 1:
        raise BrokenPromiseError(f"{len(lines)} warnings: {stderr}")


class RecorderScenario(Training):
    """Faults in the trainer's own calls of the recorder, and in its writer process."""

    area = "recorder"
    faults = (
        *FILE_FAULTS,
        *PROCESS_FAULTS,
        *MEMORY_FAULTS,
        *in_helper((*FILE_FAULTS, *PROCESS_FAULTS, *MEMORY_FAULTS)),
    )

    def root(self, home: Path) -> Path:
        return home / "run"

    def excluded(self, home: Path) -> Path:
        return home / "run/checkpoints"


class CheckpointScenario(Training):
    """Faults in files and folders of the checkpoints of a training that is not recorded."""

    area = "checkpoint"
    faults = FILE_FAULTS
    settings = (*SETTINGS, "record.enabled=false")

    def root(self, home: Path) -> Path:
        return home / "run/checkpoints"

    def judge_complete(self, run_dir: Path, ending: Ending) -> str:
        files = _checkpoint_files(run_dir)
        last = f"{STEPS}/model.safetensors"
        if "checkpoint cannot be written" not in ending.stderr:
            if files.get(last) != self.reference[last]:
                raise BrokenPromiseError(f"no warning, but no last checkpoint: {ending.stderr}")
            return _ALL_CHECKPOINTS
        _check_one(ending.stderr, "checkpoint cannot be written")
        if last not in files:
            if "the checkpoint of the last step could not be written" not in ending.stderr:
                raise BrokenPromiseError(f"the last checkpoint is missing: {ending.stderr}")
            return _NO_LAST_CHECKPOINT
        if files[last] != self.reference[last]:
            raise BrokenPromiseError("the weights differ from the undisturbed training's")
        return _NO_CHECKPOINT


class MailboxScenario(Training):
    """A training with requests in its mailbox: three notes and a change of a knob.

    With one update per batch the ratio is one, so the clip range changes no weight.
    """

    area = "mailbox"
    faults = (*FILE_FAULTS, *MEMORY_FAULTS)

    def root(self, home: Path) -> Path:
        return home / "run" / MAILBOX

    def prepare(self, home: Path) -> None:
        super().prepare(home)
        mailbox = Mailbox(home / "run")
        for number in range(3):
            note = {"kind": "treatment-proposed", "step": 0, "body": {"number": number}}
            mailbox.send(Request(f"note-{number}", "note", event=note))
        change = {"clip_high": 0.28}
        mailbox.send(Request("change", "apply", "treatment", "clip-higher", change))

    def judge_complete(self, run_dir: Path, ending: Ending) -> str:
        outcome = super().judge_complete(run_dir, ending)
        if outcome == _UNRECORDED:  # there is no journal any more
            return outcome
        kinds = [event.kind for event in read_run(run_dir).events]
        taken = [kind for kind in kinds if kind.startswith("treatment")]
        pending = len(list((run_dir / MAILBOX).glob("*.json")))
        if kinds.count("treatment-applied") > 1 or kinds.count("treatment-proposed") > 3:
            raise BrokenPromiseError(f"a request was applied twice: {kinds}")
        if len(taken) + pending < 4:
            raise BrokenPromiseError(f"a request is lost: {kinds}, {pending} pending")
        if kinds.count("treatment-applied") and kinds.count("treatment-proposed") == 3:
            return "training unharmed, all requests taken"
        return "training unharmed, a request is refused in the journal or left in the mailbox"


class SenderScenario(Scenario):
    """Another process that sends three requests."""

    area = "mailbox"
    faults = (*FILE_FAULTS, *MEMORY_FAULTS)

    def root(self, home: Path) -> Path:
        return home / "run"

    def prepare(self, home: Path) -> None:
        (home / "run").mkdir()

    def run(self, home: Path) -> None:
        mailbox, sent, refused = Mailbox(home / "run"), [], 0
        for number in range(3):
            note = {"kind": "treatment-proposed", "step": 0, "body": {"number": number}}
            request = Request(f"note-{number}", "note", event=note)
            try:
                with armed():
                    mailbox.send(request)
                sent.append(request.id)
            except (GrpodoctorError, MemoryError, TypeError):
                refused += 1  # without memory, the interpreter may raise TypeError
        (home / "sent").write_bytes(orjson.dumps(sent))
        if refused > 1:
            raise SystemExit(f"{refused} requests were refused")

    def judge(self, home: Path, ending: Ending) -> str:
        sent = orjson.loads((home / "sent").read_bytes())
        folder = home / "run" / MAILBOX
        files = sorted(folder.glob("*.json")) if folder.exists() else []
        found = [Request.from_bytes(file.read_bytes()).id for file in files]
        if set(sent) - set(found):
            raise BrokenPromiseError(f"{sent} were acknowledged, {found} are there")
        left = [path.name for path in folder.glob(".*")] if folder.exists() else []
        if left and len(sent) == 3:
            raise BrokenPromiseError(f"temporary files stay behind: {left}")
        return "every request sent" if len(sent) == 3 else "the sender gets one line"


def training_scenarios() -> list[Scenario]:
    """The scenarios of this module."""
    return [
        RecorderScenario("train"),
        CheckpointScenario("train"),
        MailboxScenario("train with requests"),
        SenderScenario("send requests"),
    ]
