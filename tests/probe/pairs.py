"""Shards of two engines made on the spot, written by the programs' own contract."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from grpodoctor.probe import contract
from grpodoctor.probe.contract import Shard


@dataclass
class Both:
    """One response in two engines; extras by name for each side."""

    sampler: NDArray[np.float64]
    learner: NDArray[np.float64]
    prompt: int = 0
    sample: int = 0
    sampler_extras: dict[str, NDArray[np.generic]] = field(default_factory=dict)
    learner_extras: dict[str, NDArray[np.generic]] = field(default_factory=dict)
    ids: Sequence[int] | None = None

    def response(self, side: str) -> object:
        """As the contract writes it."""
        tokens = len(self.sampler)
        return contract.Response(
            [1, 2, 3],
            list(range(tokens)) if self.ids is None else self.ids,
            getattr(self, side),
            self.prompt,
            self.sample,
            ended=True,
            extras=getattr(self, f"{side}_extras"),
        )


def random_responses(
    count: int,
    seed: int,
    *,
    samples: int = 8,
    gap: float = 0.02,
    prompt_gap: float = 0.0,
    longest: int = 80,
) -> list[Both]:
    """Responses whose log-probabilities differ by noise, more for some prompts than for others."""
    rng = np.random.default_rng(seed)
    responses = []
    for index in range(count):
        prompt, sample = divmod(index, samples)
        tokens = int(rng.integers(1, longest))
        sampler = -rng.exponential(0.5, tokens)
        own = gap + prompt_gap * np.random.default_rng((seed, prompt)).exponential()
        responses.append(Both(sampler, sampler + rng.normal(0, own, tokens), prompt, sample))
    return responses


def write(folder: Path, responses: Sequence[Both], per_shard: int = 64) -> tuple[Path, Path]:
    """Write both sides; the folders of the sampler and of the learner."""
    folders = (folder / "sampler", folder / "learner")
    for side, path in zip(("sampler", "learner"), folders, strict=True):
        path.mkdir(parents=True)
        for number, start in enumerate(range(0, len(responses), per_shard)):
            part = [each.response(side) for each in responses[start : start + per_shard]]
            contract.write_shard(path / f"shard-{number:05d}.npz", part)
    return folders


def shard(responses: Sequence[Both], side: str) -> Shard:
    """One side of some responses, without a file."""
    columns = [getattr(each, side).astype(np.float32) for each in responses]
    lengths = [len(each) for each in columns]
    ids = [np.arange(length) if r.ids is None else np.array(r.ids)
           for length, r in zip(lengths, responses, strict=True)]  # fmt: skip
    return Shard(
        prompt_ids_P=np.ones(len(columns), np.int32),
        prompt_offsets=np.arange(len(columns) + 1),
        response_ids_N=np.concatenate(ids).astype(np.int32),
        response_offsets=np.cumsum([0, *lengths]),
        logprobs_N=np.concatenate(columns),
        prompt_B=np.array([each.prompt for each in responses], np.int32),
        sample_B=np.array([each.sample for each in responses], np.int32),
        ended_B=np.ones(len(columns), np.bool_),
        cached_B=np.zeros(len(columns), np.int32),
    )


def endless(shards: int, make: Callable[[int], list[Both]]) -> Iterator[tuple[Shard, Shard]]:
    """This many pairs of shards, each created when requested and not kept."""
    for number in range(shards):
        responses = make(number)
        yield shard(responses, "sampler"), shard(responses, "learner")


def with_experts(
    both: Both,
    sampler_NLK: NDArray[np.integer],
    learner_NLK: NDArray[np.integer],
    margin_NL: NDArray[np.floating] | None = None,
) -> Both:
    """A response with the routing of both sides, and the learner's margins."""
    learner: dict[str, NDArray[np.generic]] = {"experts": learner_NLK}
    if margin_NL is not None:
        learner["router_margin"] = margin_NL
    return replace(both, sampler_extras={"experts": sampler_NLK}, learner_extras=learner)
