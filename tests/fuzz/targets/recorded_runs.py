"""A run of our recorder and the files in its directory: lines, rollouts, mailbox, checkpoints."""

from __future__ import annotations

import tempfile
from functools import cache
from pathlib import Path

import orjson

from grpodoctor.errors import ConfigError
from grpodoctor.monitor.replay import replay
from grpodoctor.monitor.session import Session
from grpodoctor.report.run.view import view_of
from grpodoctor.runs.recording.directory import last_step
from grpodoctor.runs.rollout_queries.index import RolloutIndex, RolloutQuery
from grpodoctor.runs.rollout_queries.recorded_parts import RecordedParts
from grpodoctor.runs.rollouts import write_rollouts
from grpodoctor.support.files.locks import Lock
from grpodoctor.trainer.config.train_config import load_config
from grpodoctor.trainer.model import checkpoint
from grpodoctor.treatment.mailbox import Inbox
from grpodoctor.treatment.requests import Refused, Request, validate
from tests.fuzz.mutations import binaries, texts
from tests.fuzz.targets.base import Target
from tests.runs.rollout_dumps.samples import batch

_DATA = Path(__file__).parents[2] / "data"
_RUN = {
    name: (lambda name=name: (_DATA / "run" / name).read_bytes())
    for name in ("run.json", "steps.jsonl", "events.jsonl")
}
_ROLLOUTS = "rollouts/step-000002.rank-0.parquet"
_LIVE = {"temperature": 1.0, "clip_high": 0.2, "kl_coefficient": 0.0}


def targets() -> list[Target]:
    """The parts of a run directory."""
    lines = {"steps.jsonl": texts.json_lines, "events.jsonl": texts.json_lines}
    parts = [
        Target(
            f"own run: {name}",
            name,
            _RUN[name],
            _replay_and_watch,
            lines.get(name, texts.json_document),
            {other: _RUN[other] for other in _RUN if other != name},
            weight=0.4,
        )
        for name in _RUN
    ]
    return [
        *parts,
        Target("own run: rollouts", _ROLLOUTS, _rollouts, _list_responses,
               binaries.parquet_columns, _RUN, weight=0.4),
        Target("own run: attached probe", "probe/a.json",
               (_DATA / "attached_probe.json").read_bytes, _replay_and_watch,
               texts.json_document, _RUN, weight=0.4),
        Target("own run: lock", "writer.lock", lambda: b'{"pid": 1, "host": "h"}', _take_lock,
               texts.json_document),
        Target("mailbox: change", "mailbox/1.json", _change, _take_mail, texts.json_document),
        Target("mailbox: note", "mailbox/1.json", _note, _take_mail, texts.json_document),
        Target("checkpoint: state.json", "checkpoints/step-000003/state.json", _state, _resume,
               texts.json_document),
    ]  # fmt: skip


def _replay_and_watch(path: Path) -> None:
    run = path.parent if path.name in _RUN else path.parents[1]
    view_of(replay(run), verbose=True)
    session, more = Session(run, apply="safe"), True
    while more:
        more = session.tick(final=True).more
    last_step(run / "steps.jsonl")


@cache
def _rollouts() -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        (root / "rollouts").mkdir()
        write_rollouts(root, batch(2), depth="full")
        return (root / _ROLLOUTS).read_bytes()


def _list_responses(path: Path) -> None:
    run = path.parents[1]
    view_of(replay(run), verbose=True)
    index = RolloutIndex(RecordedParts(run))
    index.refresh()
    page = index.page(RolloutQuery(text="a"), 0, 5)
    index.in_full(page.figures)


def _take_lock(path: Path) -> None:
    Lock.take(path, 0).release()


def _change() -> bytes:
    changes = {"temperature": 0.9, "clip_high": 0.28}
    return Request("r1", "apply", "t1", "clip-higher", changes).to_bytes()


def _note() -> bytes:
    evidence = [{"metric": "entropy/mean", "value": 0.1, "step": 3, "baseline": 0.5}]
    event = {"kind": "finding-raised", "step": 3, "code": "ENT001", "evidence": evidence}
    return Request("r2", "note", event=event).to_bytes()


def _take_mail(path: Path) -> None:
    """What the run does with a request, up to the journal line that answers it."""
    (taken,) = Inbox(path.parents[1]).take(5)
    if isinstance(taken, Refused):
        _check_line(taken.body())
    elif taken.kind == "note":
        _check_line(taken.as_event().to_line())
    else:
        checked = validate(taken, _LIVE)
        _check_line(checked.body() if isinstance(checked, Refused) else taken.body())
    if path.exists():
        raise AssertionError("the request was not removed")


def _check_line(line: object) -> None:
    written = line if isinstance(line, bytes) else orjson.dumps(line)
    if len(written) > 1_000_000:
        raise AssertionError(f"a journal line of {len(written)} bytes")


@cache
def _state() -> bytes:
    config = load_config().model_dump(mode="json")
    kinds = checkpoint._STATE
    values = {kind: kind() for kind in set(kinds.values())}
    state = {key: values[kind] for key, kind in kinds.items()}
    return orjson.dumps({**state, "config": config})


def _resume(path: Path) -> None:
    run = path.parents[2]
    checkpoint.steps_done(run)
    checkpoint.saved_config(run)
    checkpoint.unrecorded_note(run)
    with_error = ["steps=not a number"]
    try:
        checkpoint.saved_config(run, with_error)
    except ConfigError:
        return
    raise AssertionError("an invalid assignment was accepted")
