"""What every engine program here has in common: a request in, shards of arrays out.

A program is run by path in whatever Python has its engine (`python probes/engine_vllm.py REQUEST`,
or under torchrun), so this file needs nothing but numpy and the standard library, and nothing of
the package that launches it. The programs are called `engine_<name>.py`: one called `vllm.py` would
be imported in place of vLLM.

A request is a JSON file:

    {"contract": 1, "model": "path or name", "options": {"dtype": "bfloat16", …},
     "answer": "/…/answer.json", "tasks": [TASK, …]}

and its tasks are done one after the other by an engine that is loaded once:

    {"kind": "tokenise", "name": …, "prompts": "/…/prompts.json", "output": "/…/folder"}
    {"kind": "sample",   "name": …, "prompts": "/…/prompts.json", "output": "/…/folder",
     "sampling": SAMPLING, "want": ["experts"], "shard_responses": 256}
    {"kind": "score",    "name": …, "inputs": "/…/folder of shards", "output": "/…/folder",
     "processing": PROCESSING, "want": ["entropy", "ranks", …], "order": "given" | "reversed",
     "prompts": "/…/prompts.json" to score each response after the engine's own prompt ids,
     "replay": true to score with the routers forced to the experts that the inputs tell of}

A prompts file is a list of `{"text": …}`, `{"messages": […]}` or `{"ids": […]}`. The answer says
what the engine is and what became of each task; it is written anew after each, and holds the
`error` that ended the program, if one did. A shard is an `.npz` with the arrays that `Shard`
describes, written aside and renamed, so that one that is there is whole; a program that is started
again skips the shards that are there.
"""

from __future__ import annotations

import json
import os
import sys
import time
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np

CONTRACT = 1
SHARD_RESPONSES = 256
REFUSED = 2
"""Exit code of a program that says in its answer why it cannot do what was asked."""

TEMPERATURES = (0.25, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.1, 1.2, 1.3, 1.5, 1.75, 2.0, 3.0)
"""Where `want=temperatures` gives log-probabilities at."""

WANTS = ("entropy", "ranks", "temperatures", "experts")
"""What a task may want besides log-probabilities; an engine gives what it can.

- `entropy`: `entropy_N`, of the distribution that the token's log-probability is of, in nats
- `ranks`: `rank_N`, how many tokens are strictly likelier; `mass_above_N`, their probability;
  `top_logprob_N`, the log-probability of the likeliest one
- `temperatures`: `at_temperature_NT`, log-probabilities at each of `TEMPERATURES`, raw otherwise
- `experts`: `experts_NLK`, ids of the experts that the token that *predicts* this one was sent to,
  -1 where not known; and `router_margin_NL`, where the router's logits can be had: the logit of the
  last expert chosen minus that of the first not chosen
"""


class RefusalError(Exception):
    """What was asked cannot be done; the message is for the user.

    Args:
        what: what is wrong, a clause.
        remedy: what the reader can do about it, in the imperative.
    """

    def __init__(self, what: str, remedy: str = "") -> None:
        super().__init__(what)
        self.what, self.remedy = what, remedy


@dataclass(frozen=True)
class Sampling:
    """How responses are drawn. A top_k of 0, a top_p of 1 and a min_p of 0 cut nothing off."""

    samples: int = 8
    max_tokens: int = 512
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    seed: int = 0
    stop_ids: tuple[int, ...] = ()
    """Ends of a response besides the engine's own."""
    ignore_end: bool = False
    """Draw exactly max_tokens tokens."""


@dataclass(frozen=True)
class Processing:
    """What is done to logits before a log-probability is taken of them."""

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0


@dataclass
class Response:
    """One response with what an engine says of its tokens. What is None it does not say.

    N tokens, L layers with routers, K experts a token.
    """

    prompt_ids: Sequence[int]
    response_ids: Sequence[int]
    logprobs: Sequence[float] | None = None
    """Of the N tokens under this engine; NaN where it gave none."""
    prompt: int = 0
    """Which prompt of the file."""
    sample: int = 0
    """Which of its samples."""
    ended: bool = False
    """By an end token, which is then the last of the response; not by the limit."""
    cached: int = 0
    """Prompt tokens that came from a prefix cache."""
    extras: dict[str, np.ndarray] = field(default_factory=dict)
    """Arrays of `WANTS` by name, N first."""


def with_defaults(
    options: Mapping[str, Any], defaults: Mapping[str, Any], engine: str
) -> dict[str, Any]:
    """All options of an engine, those that are not given at their defaults.

    Raises:
        RefusalError: if one is not among the defaults.
    """
    for name in options:
        if name not in defaults:
            raise RefusalError(
                f"{engine} has no option {name[:60]!r}", f"the known ones are {', '.join(defaults)}"
            )
    return {**defaults, **options}


def response_seed(sampling: Sampling, prompt: int, sample: int) -> int:
    """A seed below 2⁶² for one response of `Engine.sample`, the same however shards are cut.

    A shard's own seed is as much more than the task's as its first prompt's number.
    """
    entropy = ((sampling.seed + prompt) % 2**63, sample)
    return int(np.random.SeedSequence(entropy).generate_state(1, np.uint64)[0] >> np.uint64(2))


class Engine(Protocol):
    """What an engine program implements."""

    def describe(self) -> dict[str, Any]:
        """What the engine is and how it is set up.

        Keys that all give: `name`, `version`, `model`, `dtype`, `device`, `layout` (a dict of
        degrees, such as `{"tensor_parallel": 2}`), `vocab_size`, `end_ids`, `begin_id` (or None),
        `context` (longest sequence), `logprobs` (`raw` or `processed`: whether what `sample` gives
        includes temperature and truncation), and `settings`, any further facts.
        """

    def tokenise(self, prompts: Sequence[Mapping[str, Any]]) -> list[list[int]]:
        """The ids that this engine feeds its model for each prompt."""

    def sample(
        self, prompts: Sequence[Sequence[int]], sampling: Sampling, want: Sequence[str]
    ) -> list[Response]:
        """`sampling.samples` responses a prompt, those of a prompt together, in order.

        `prompt` of each is the index in `prompts`.
        """

    def score(
        self, responses: Sequence[Response], processing: Processing, want: Sequence[str]
    ) -> list[Response]:
        """The same responses, in order, with this engine's log-probabilities of their tokens."""

    def close(self) -> None:
        """Free what the engine holds."""


@runtime_checkable
class Recording(Protocol):
    """An engine that has its responses already; it is given no prompts and draws nothing."""

    def recorded(self) -> Sequence[Response]:
        """All of them, those of a prompt together, with the prompts' and samples' numbers."""


@runtime_checkable
class Replaying(Protocol):
    """An engine that can force the experts of a mixture."""

    def replay(
        self, responses: Sequence[Response], processing: Processing, want: Sequence[str]
    ) -> list[Response]:
        """As `Engine.score`, with the experts in `extras["experts"]` in place of the routers' own.

        A row holds for the token that predicts the row's token: the first for the prompt's last
        one, to which no other holds; all before it is routed freely. A layer where any expert of a
        row is -1 is routed freely too. What forced experts weigh is the router's own, over them
        alone. `experts`, if wanted, are those that were really at work.
        """


_Score = Callable[[Sequence[Response], Processing, Sequence[str]], list[Response]]
_PER_TOKEN = ("entropy", "rank", "mass_above", "top_logprob")
_SUFFIX = {
    **dict.fromkeys(_PER_TOKEN, "N"),
    "at_temperature": "NT",
    "experts": "NLK",
    "router_margin": "NL",
}
_TYPES = {"rank": np.int32, "experts": np.int16}


def write_shard(path: Path, responses: Sequence[Response]) -> None:
    """Write responses as one `.npz`, aside and renamed.

    The arrays, N tokens of all responses one after the other: `prompt_ids_P`, `prompt_offsets`
    (B + 1), `response_ids_N`, `response_offsets` (B + 1), `logprobs_N` (NaN where there is none),
    `prompt_B`, `sample_B`, `ended_B`, `cached_B`, and those of `WANTS` that all responses have.
    """
    arrays: dict[str, np.ndarray] = {
        "prompt_ids_P": _flat([each.prompt_ids for each in responses], np.int32),
        "prompt_offsets": _offsets([each.prompt_ids for each in responses]),
        "response_ids_N": _flat([each.response_ids for each in responses], np.int32),
        "response_offsets": _offsets([each.response_ids for each in responses]),
        "logprobs_N": _flat([_logprobs(each) for each in responses], np.float32),
        "prompt_B": np.array([each.prompt for each in responses], np.int32),
        "sample_B": np.array([each.sample for each in responses], np.int32),
        "ended_B": np.array([each.ended for each in responses], np.bool_),
        "cached_B": np.array([each.cached for each in responses], np.int32),
    }
    for name, suffix in _SUFFIX.items():
        if responses and all(name in each.extras for each in responses):
            parts = [np.asarray(each.extras[name]) for each in responses]
            arrays[f"{name}_{suffix}"] = np.concatenate(parts).astype(_TYPES.get(name, np.float32))
    aside = path.with_suffix(".tmp")
    with aside.open("wb") as file:
        np.savez(file, allow_pickle=False, **arrays)
    aside.replace(path)


def _logprobs(response: Response) -> Sequence[float]:
    if response.logprobs is None:
        return [float("nan")] * len(response.response_ids)
    return response.logprobs


def _flat(parts: Sequence[Sequence[Any]], kind: Any) -> np.ndarray:
    return np.concatenate([np.asarray(part, kind) for part in parts] or [np.empty(0, kind)])


def _offsets(parts: Sequence[Sequence[Any]]) -> np.ndarray:
    return np.cumsum([0, *(len(part) for part in parts)], dtype=np.int64)


def read_shard(path: Path, *, routed: bool = False) -> list[Response]:
    """The responses of a shard: ids and where they come from, without log-probabilities.

    Args:
        path: of the shard.
        routed: put the `experts` of each response among its extras, and nothing else.

    Raises:
        RefusalError: if they are asked for and the shard does not tell of them.
    """
    with np.load(path, allow_pickle=False) as arrays:
        prompts = np.split(arrays["prompt_ids_P"], arrays["prompt_offsets"][1:-1])
        responses = np.split(arrays["response_ids_N"], arrays["response_offsets"][1:-1])
        facts = (arrays[name].tolist() for name in ("prompt_B", "sample_B", "ended_B"))
        read = [
            Response(ids.tolist(), tokens.tolist(), None, prompt, sample, ended)
            for ids, tokens, prompt, sample, ended in zip(prompts, responses, *facts, strict=True)
        ]
        if routed:
            parts = np.split(_experts(path, arrays), arrays["response_offsets"][1:-1])
            for response, experts_NLK in zip(read, parts, strict=True):
                response.extras["experts"] = experts_NLK
        return read


def _experts(path: Path, arrays: Mapping[str, np.ndarray]) -> np.ndarray:
    if "experts_NLK" not in arrays:
        raise RefusalError(
            f"{path} tells of no experts that could be replayed",
            "sample from an engine that tells of them, with experts wanted",
        )
    experts, tokens = arrays["experts_NLK"], len(arrays["response_ids_N"])
    if experts.ndim != 3 or experts.dtype.kind not in "iu" or len(experts) != tokens:
        told = f"experts of shape {experts.shape} in {experts.dtype} for {tokens} tokens"
        raise RefusalError(f"{path} has {told}", "give their ids by token, layer and choice")
    return experts


def serve(load: Any, *, first: bool = True, meet: Callable[[], None] = lambda: None) -> None:
    """Do what the request named on the command line asks for, and end the program.

    Args:
        load: called with the request's `model` and `options`; returns an `Engine`. May raise
            `RefusalError`, `ImportError` for an engine that is not installed here, and whatever
            else an engine raises, which ends the program with a traceback in its log.
        first: whether this process, of several that do the same, is the one that writes.
        meet: waits for the others; called after each task, so that all see what was written.
    """
    request = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    answer = _Answer(Path(request["answer"]), first)
    try:
        _serve(load, request, answer, meet)
    except RefusalError as refusal:
        answer.refuse(refusal.what, refusal.remedy)
        sys.exit(REFUSED)
    except ImportError as error:
        answer.refuse(
            f"{sys.executable} cannot import what the engine needs: {error}",
            "install it there, or name the Python that has it with python=",
        )
        sys.exit(REFUSED)


def _serve(
    load: Any, request: Mapping[str, Any], answer: _Answer, meet: Callable[[], None]
) -> None:
    if request.get("contract") != CONTRACT:
        raise RefusalError(
            f"this program speaks contract {CONTRACT}, the request {request.get('contract')}",
            "use programs and package of one version",
        )
    began = time.monotonic()
    engine: Engine = load(request["model"], dict(request["options"]))
    try:
        answer.facts["engine"] = engine.describe()
        answer.facts["load_seconds"] = round(time.monotonic() - began, 3)
        answer.write()
        for task in request["tasks"]:
            answer.tell(task["name"], _do(engine, task, first=answer.first))
            meet()
    finally:
        engine.close()


class _Answer:
    """The answer's file, told anew after each task."""

    def __init__(self, path: Path, first: bool) -> None:
        self.path, self.first = path, first
        self.facts: dict[str, Any] = {
            "contract": CONTRACT,
            "python": sys.version.split()[0],
            "engine": {},
            "tasks": {},
            "error": None,
        }

    def tell(self, task: str, result: Mapping[str, Any]) -> None:
        self.facts["tasks"][task] = dict(result)
        self.write()

    def refuse(self, what: str, remedy: str) -> None:
        self.facts["error"] = {"what": what, "remedy": remedy}
        self.write()
        if not self.first:  # what one of several cannot do alone would be told nowhere else
            print(f"{what}; {remedy}", file=sys.stderr, flush=True)

    def write(self) -> None:
        if self.first:
            aside = self.path.with_suffix(f".{os.getpid()}.tmp")
            aside.write_text(json.dumps(self.facts), encoding="utf-8")
            aside.replace(self.path)


def _do(engine: Engine, task: Mapping[str, Any], *, first: bool) -> dict[str, Any]:
    began = time.monotonic()
    output = Path(task["output"])
    output.mkdir(parents=True, exist_ok=True)
    done = {"tokenise": _tokenise, "sample": _sample, "score": _score}[task["kind"]]
    counts = done(engine, task, output, first)
    return counts | {"seconds": round(time.monotonic() - began, 3)}


def _read_prompts(task: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    prompts: list[Mapping[str, Any]] = json.loads(Path(task["prompts"]).read_text("utf-8"))
    return prompts


def _own_ids(engine: Engine, prompts: Sequence[Mapping[str, Any]]) -> list[list[int]]:
    """The engine's ids of each prompt; ids that are given are taken as they are."""
    spoken = [index for index, prompt in enumerate(prompts) if "ids" not in prompt]
    ids = [list(prompt.get("ids", ())) for prompt in prompts]
    if spoken:
        told = engine.tokenise([prompts[index] for index in spoken])
        for index, own in zip(spoken, told, strict=True):
            ids[index] = list(own)
    return ids


def _tokenise(engine: Engine, task: Mapping[str, Any], output: Path, first: bool) -> dict[str, Any]:
    ids = _own_ids(engine, _read_prompts(task))
    if first:
        (output / "ids.json").write_text(json.dumps(ids), encoding="utf-8")
    return {"prompts": len(ids)}


def _sample(engine: Engine, task: Mapping[str, Any], output: Path, first: bool) -> dict[str, Any]:
    counts = {"shards": 0, "responses": 0, "tokens": 0}
    for number, draw in enumerate(_draws(engine, task)):
        path = output / f"shard-{number:05d}.npz"
        if not _whole(path):
            drawn = draw()
            if first:
                write_shard(path, drawn)
        _count(counts, path, first)
    return counts


def _draws(engine: Engine, task: Mapping[str, Any]) -> Iterator[Callable[[], Sequence[Response]]]:
    """What draws the responses of each shard."""
    given = task["sampling"]
    sampling = Sampling(**given | {"stop_ids": tuple(given.get("stop_ids", ()))})
    size = int(task.get("shard_responses", SHARD_RESPONSES))
    if isinstance(engine, Recording):
        recorded = engine.recorded()
        for start in range(0, len(recorded), size):
            yield partial(list, recorded[start : start + size])
        return
    ids = _own_ids(engine, _read_prompts(task))
    width = max(1, size // sampling.samples)
    for start in range(0, len(ids), width):
        yield partial(_drawn, engine, ids, range(start, start + width), sampling, task)


def _drawn(
    engine: Engine,
    ids: Sequence[Sequence[int]],
    which: range,
    sampling: Sampling,
    task: Mapping[str, Any],
) -> list[Response]:
    # Each shard's seed is its own: a program that goes on draws what it would have drawn.
    seeded = Sampling(**vars(sampling) | {"seed": sampling.seed + which.start})
    drawn = engine.sample(ids[which.start : which.stop], seeded, task.get("want", ()))
    for response in drawn:
        response.prompt += which.start
    return drawn


def _score(engine: Engine, task: Mapping[str, Any], output: Path, first: bool) -> dict[str, Any]:
    processing = Processing(**task.get("processing", {}))
    replayed = bool(task.get("replay"))
    score = _replaying(engine) if replayed else engine.score
    own = _own_ids(engine, _read_prompts(task)) if task.get("prompts") else None
    counts = {"shards": 0, "responses": 0, "tokens": 0}
    for inputs in sorted(Path(task["inputs"]).glob("shard-*.npz")):
        path = output / inputs.name
        if not _whole(path):
            responses = read_shard(inputs, routed=replayed)
            if own is not None:
                for response in responses:
                    response.prompt_ids = own[response.prompt]
            scored = _in_order(score, responses, processing, task)
            if first:
                write_shard(path, scored)
        _count(counts, path, first)
    return counts


def _replaying(engine: Engine) -> _Score:
    if not isinstance(engine, Replaying):
        raise RefusalError(
            f"{engine.describe()['name']} cannot replay the experts of another engine",
            "use an engine that can: transformers or fsdp",
        )
    return engine.replay


def _in_order(
    score: _Score, responses: list[Response], processing: Processing, task: Mapping[str, Any]
) -> list[Response]:
    """Reversed, responses meet other neighbours in their batches; they are given back in order."""
    step = -1 if task.get("order") == "reversed" else 1
    return score(responses[::step], processing, task.get("want", ()))[::step]


def _whole(path: Path) -> bool:
    return path.exists() and zipfile.is_zipfile(path)


def _count(counts: dict[str, int], path: Path, first: bool) -> None:
    if not first:
        return
    with np.load(path, allow_pickle=False) as arrays:
        counts["shards"] += 1
        counts["responses"] += len(arrays["prompt_B"])
        counts["tokens"] += len(arrays["response_ids_N"])
