"""Running the tasks of a request, and writing the answer."""

from __future__ import annotations

import json
import os
import sys
import time
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from .datatypes import (
    CONTRACT_VERSION,
    REFUSED,
    SHARD_RESPONSES,
    InapplicableError,
    Processing,
    RefusalError,
    Response,
    Sampling,
)
from .engine import (
    AlterableEngine,
    Engine,
    FirstOrderEngine,
    RecordedEngine,
    ReplayEngine,
    SensitiveEngine,
)
from .probe_watch import end_with_probe
from .shards import read_responses, shard_paths, write_shard

_IDLE_SECONDS = 120.0
_POLL_SECONDS = 0.02

_Score = Callable[[Sequence[Response], Processing, Sequence[str]], list[Response]]


def serve(
    load: Callable[[str, dict[str, Any]], Engine],
    *,
    is_writer: bool = True,
    barrier: Callable[[], None] = lambda: None,
) -> None:
    """Run the request named on the command line and those that follow it; then end the program.

    Args:
        load: called with the request's `model` and `options`. May raise `RefusalError`,
            `ImportError` if this Python lacks the engine, and anything the engine raises, which
            ends the program with a traceback in its log.
        is_writer: whether this process writes files; only one of several ranks does.
        barrier: waits for the other ranks; called after each task, so that all see its files.
    """
    end_with_probe()
    request = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    answer = _Answer(Path(request["answer"]), is_writer=is_writer)
    try:
        started = time.monotonic()
        engine = _load(load, request)
        try:
            answer.content["engine"] = engine.describe()
            answer.content["load_seconds"] = round(time.monotonic() - started, 3)
            while True:
                _run_tasks(engine, request, answer, barrier)
                following = next_request(request)
                if following is None:
                    return
                request, answer = following, answer.following(Path(following["answer"]))
        finally:
            engine.close()
    except RefusalError as refusal:
        answer.refuse(refusal.what, refusal.remedy)
        sys.exit(REFUSED)
    except ImportError as error:
        answer.refuse(
            f"{sys.executable} cannot import what the engine needs: {error}",
            "install it there, or name the Python that has it with python=",
        )
        sys.exit(REFUSED)


def _load(load: Callable[[str, dict[str, Any]], Engine], request: Mapping[str, Any]) -> Engine:
    if request.get("contract") != CONTRACT_VERSION:
        raise RefusalError(
            f"this program speaks contract {CONTRACT_VERSION}, the request "
            f"{request.get('contract')}",
            "use engine programs and a grpodoctor of the same version",
        )
    return load(request["model"], dict(request["options"]))


def _run_tasks(
    engine: Engine, request: Mapping[str, Any], answer: _Answer, barrier: Callable[[], None]
) -> None:
    answer.write()
    for task in request["tasks"]:
        answer.add(task["name"], _run_task(engine, task, is_writer=answer.is_writer))
        barrier()
    answer.content["waiting"] = "next" in request
    answer.write()


def next_request(request: Mapping[str, Any]) -> dict[str, Any] | None:
    """Wait for the file that a request names as the next one; None if the program shall end.

    An empty request, the end of the program's parent, and `idle_seconds` without a request end it:
    a probe that was killed must not leave an engine that keeps its memory.
    """
    if "next" not in request:
        return None
    path, parent = Path(request["next"]), os.getppid()
    deadline = time.monotonic() + float(request.get("idle_seconds", _IDLE_SECONDS))
    while not path.exists():
        if os.getppid() != parent or time.monotonic() > deadline:
            return None
        time.sleep(_POLL_SECONDS)
    following: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return following or None


class _Answer:
    """The answer file, replaced after each task."""

    def __init__(self, path: Path, *, is_writer: bool) -> None:
        self.path, self.is_writer = path, is_writer
        self.content: dict[str, Any] = {
            "contract": CONTRACT_VERSION,
            "python": sys.version.split()[0],
            "engine": {},
            "tasks": {},
            "error": None,
        }

    def following(self, path: Path) -> _Answer:
        """The answer to the next request, with the same engine."""
        answer = _Answer(path, is_writer=self.is_writer)
        for key in ("engine", "load_seconds"):
            answer.content[key] = self.content[key]
        return answer

    def add(self, task: str, result: Mapping[str, Any]) -> None:
        self.content["tasks"][task] = dict(result)
        self.write()

    def refuse(self, what: str, remedy: str) -> None:
        self.content["error"] = {"what": what, "remedy": remedy}
        self.write()
        if not self.is_writer:  # the answer holds only the writer's error
            print(f"{what}; {remedy}", file=sys.stderr, flush=True)

    def write(self) -> None:
        if self.is_writer:
            temporary = self.path.with_suffix(f".{os.getpid()}.tmp")
            temporary.write_text(json.dumps(self.content), encoding="utf-8")
            temporary.replace(self.path)


def _run_task(engine: Engine, task: Mapping[str, Any], *, is_writer: bool) -> dict[str, Any]:
    started = time.monotonic()
    output = Path(task["output"])
    output.mkdir(parents=True, exist_ok=True)
    run = _TASKS[task["kind"]]
    try:
        with _altered(engine, task):
            counts = run(engine, task, output, is_writer)
    except InapplicableError as error:
        return {"inapplicable": error.what}
    return counts | {"seconds": round(time.monotonic() - started, 3)}


def _read_prompts(task: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    prompts: list[Mapping[str, Any]] = json.loads(Path(task["prompts"]).read_text("utf-8"))
    return prompts


def _prompt_ids(engine: Engine, prompts: Sequence[Mapping[str, Any]]) -> list[list[int]]:
    """The engine's ids of each prompt; prompts given as ids are used unchanged."""
    prompt_ids = [list(prompt.get("ids", ())) for prompt in prompts]
    indices = [index for index, prompt in enumerate(prompts) if "ids" not in prompt]
    if indices:
        tokenized = engine.tokenise([prompts[index] for index in indices])
        for index, ids in zip(indices, tokenized, strict=True):
            prompt_ids[index] = list(ids)
    return prompt_ids


def _tokenize(
    engine: Engine, task: Mapping[str, Any], output: Path, is_writer: bool
) -> dict[str, Any]:
    prompt_ids = _prompt_ids(engine, _read_prompts(task))
    if is_writer:
        (output / "ids.json").write_text(json.dumps(prompt_ids), encoding="utf-8")
    return {"prompts": len(prompt_ids)}


def _sample(
    engine: Engine, task: Mapping[str, Any], output: Path, is_writer: bool
) -> dict[str, Any]:
    counts = {"shards": 0, "responses": 0, "tokens": 0}
    for number, sample_shard in enumerate(_shard_samplers(engine, task)):
        path = output / f"shard-{number:05d}.npz"
        if not _is_complete(path):
            responses = sample_shard()
            if is_writer:
                write_shard(path, responses)
        _count(counts, path, is_writer)
    return counts


def _shard_samplers(
    engine: Engine, task: Mapping[str, Any]
) -> Iterator[Callable[[], Sequence[Response]]]:
    """A function for each shard that returns its responses."""
    settings = task["sampling"]
    biases = tuple((int(token), float(bias)) for token, bias in settings.get("logit_bias", ()))
    stops = tuple(settings.get("stop_ids", ()))
    sampling = Sampling(**settings | {"stop_ids": stops, "logit_bias": biases})
    size = int(task.get("shard_responses", SHARD_RESPONSES))
    if isinstance(engine, RecordedEngine):
        recorded = engine.recorded()
        for start in range(0, len(recorded), size):
            yield partial(list, recorded[start : start + size])
        return
    prompt_ids = _prompt_ids(engine, _read_prompts(task))
    width = max(1, size // sampling.samples)
    for start in range(0, len(prompt_ids), width):
        yield partial(
            _sample_shard, engine, prompt_ids, range(start, start + width), sampling, task
        )


def _sample_shard(
    engine: Engine,
    prompt_ids: Sequence[Sequence[int]],
    prompts: range,
    sampling: Sampling,
    task: Mapping[str, Any],
) -> list[Response]:
    # Each shard has its own seed, so that a restarted program samples the same responses.
    seeded = Sampling(**vars(sampling) | {"seed": sampling.seed + prompts.start})
    responses = engine.sample(
        prompt_ids[prompts.start : prompts.stop], seeded, task.get("want", ())
    )
    for response in responses:
        response.prompt += prompts.start
    return responses


def _score(
    engine: Engine, task: Mapping[str, Any], output: Path, is_writer: bool
) -> dict[str, Any]:
    processing = Processing(**task.get("processing", {}))
    is_replay = bool(task.get("replay"))
    score = _replay_of(engine) if is_replay else engine.score
    prompt_ids = _prompt_ids(engine, _read_prompts(task)) if task.get("prompts") else None
    counts = {"shards": 0, "responses": 0, "tokens": 0}
    for source in shard_paths(Path(task["inputs"])):
        path = output / source.name
        if not _is_complete(path):
            responses = read_responses(source, with_experts=is_replay)
            if prompt_ids is not None:
                for response in responses:
                    response.prompt_ids = prompt_ids[response.prompt]
            scored = _score_in_order(score, responses, processing, task)
            if is_writer:
                write_shard(path, scored)
        _count(counts, path, is_writer)
    return counts


def _list_what_ifs(
    engine: Engine, _task: Mapping[str, Any], output: Path, is_writer: bool
) -> dict[str, Any]:
    listed = engine.what_ifs() if isinstance(engine, AlterableEngine) else []
    if is_writer:
        (output / "what_ifs.json").write_text(json.dumps(listed), encoding="utf-8")
    return {"what_ifs": len(listed)}


def _measure_sensitivities(
    engine: Engine, task: Mapping[str, Any], output: Path, is_writer: bool
) -> dict[str, Any]:
    if not isinstance(engine, SensitiveEngine):
        raise InapplicableError(f"{engine.describe()['name']} measures no sensitivities")
    responses = [r for path in shard_paths(Path(task["inputs"])) for r in read_responses(path)]
    processing = Processing(**task.get("processing", {}))
    arrays = engine.sensitivities(responses, processing, int(task["tokens"]))
    if is_writer:
        named: dict[str, Any] = dict(arrays)
        np.savez(output / "sensitivities.npz", **named)
    return {"tokens": len(arrays["token_N"])}


def _estimate_edits(
    engine: Engine, task: Mapping[str, Any], output: Path, is_writer: bool
) -> dict[str, Any]:
    if not isinstance(engine, FirstOrderEngine):
        raise InapplicableError(f"{engine.describe()['name']} estimates no edits")
    responses = [r for path in shard_paths(Path(task["inputs"])) for r in read_responses(path)]
    processing = Processing(**task.get("processing", {}))
    edits, arrays = engine.first_order(responses, processing, int(task["tokens"]))
    if is_writer:
        (output / "edits.json").write_text(json.dumps(edits), encoding="utf-8")
        named: dict[str, Any] = dict(arrays)
        np.savez(output / "effects.npz", **named)
    return {"tokens": len(arrays["token_N"]), "edits": len(edits)}


def _altered(engine: Engine, task: Mapping[str, Any]) -> AbstractContextManager[None]:
    edits = [(str(name), value) for name, value in task.get("what_if") or ()]
    if not edits:
        return nullcontext()
    if not isinstance(engine, AlterableEngine):
        raise InapplicableError(f"{engine.describe()['name']} cannot compute differently")
    return engine.altered(edits)


def _replay_of(engine: Engine) -> _Score:
    if not isinstance(engine, ReplayEngine):
        raise RefusalError(
            f"{engine.describe()['name']} cannot replay the experts of another engine",
            "use an engine that can: transformers or fsdp",
        )
    return engine.replay


def _score_in_order(
    score: _Score, responses: list[Response], processing: Processing, task: Mapping[str, Any]
) -> list[Response]:
    """Score in the requested order, which decides the batches; return the given order."""
    step = -1 if task.get("order") == "reversed" else 1
    return score(responses[::step], processing, task.get("want", ()))[::step]


_TASKS = {
    "tokenise": _tokenize,
    "sample": _sample,
    "score": _score,
    "what_ifs": _list_what_ifs,
    "sensitivities": _measure_sensitivities,
    "first_order": _estimate_edits,
}


def _is_complete(path: Path) -> bool:
    return path.exists() and zipfile.is_zipfile(path)


def _count(counts: dict[str, int], path: Path, is_writer: bool) -> None:
    if not is_writer:
        return
    with np.load(path, allow_pickle=False) as arrays:
        counts["shards"] += 1
        counts["responses"] += len(arrays["prompt_B"])
        counts["tokens"] += len(arrays["response_ids_N"])
