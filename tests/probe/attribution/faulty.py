"""The transformers engine with a planted fault: `program:.../faulty.py?model=DIR&fault=shift`.

It also takes the options of the transformers engine, none of which causes these faults.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[3] / "probes"))

import engine_transformers
from contract import Processing, Response, Sampling, serve

FLIPPED = 0.07
"""Of the tokens of a layer, where one in four is to be flipped in one of four."""
PROMPTS = {
    "begun": lambda ids: [BOS, *ids],
    "first_lost": lambda ids: ids[1:],
    "last_lost": lambda ids: ids[:-1],
    "short": lambda ids: ids[-8:],
}
"""The prompt that the faulty sampler actually reads."""
BOS = 2
OTHER_END = 6
"""The token that also ends responses under `other_end`."""
SUBSET = 7
"""One prompt in so many is off under `subset`."""


class Faulty:
    """Another engine, which `fault` happens to."""

    def __init__(self, engine: Any, fault: str) -> None:
        self._engine, self._fault = engine, fault

    def describe(self) -> dict[str, Any]:
        told = self._engine.describe() | {"name": "faulty"}
        if self._fault == "raw":
            told["logprobs"] = "raw"
        if self._fault in ("other_end", "end_besides"):
            told["end_ids"] = [*told["end_ids"], OTHER_END]
        return told

    def tokenise(self, prompts: Sequence[Mapping[str, Any]]) -> list[list[int]]:
        return self._engine.tokenise(prompts)

    def sample(
        self, prompts: Sequence[Sequence[int]], sampling: Sampling, want: Sequence[str]
    ) -> list[Response]:
        hidden = {
            "hot": {"temperature": sampling.temperature * 1.25},
            "top_k": {"top_k": 4},
            "top_p": {"top_p": 0.8},
            "speculative": {"temperature": 1.6},
            "warm": {"temperature": sampling.temperature * 1.03},
            "wide_top_p": {"top_p": 0.95},
            "hot_top_k": {"temperature": sampling.temperature * 1.2, "top_k": 8},
        }
        asked = replace(sampling, **hidden.get(self._fault, {}))
        read = [PROMPTS.get(self._fault, list)(list(each)) for each in prompts]
        drawn = self._engine.sample(read, asked, want)
        for each in drawn:
            each.prompt_ids = prompts[each.prompt]
        if self._fault == "end_dropped":
            drawn = [_without_end(each) for each in drawn]
        if self._fault == "other_end":
            drawn = [_ended_early(each) for each in drawn]
        if self._fault in ("speculative", "raw"):  # reported from another distribution than sampled
            told = Processing() if self._fault == "raw" else _processing(sampling)
            drawn = self._engine.score(drawn, told, want)
        if self._fault == "flips":
            drawn = self._engine.replay(_rerouted(drawn), _processing(sampling), want)
        return [self._spoilt(each, number) for number, each in enumerate(drawn)]

    def score(
        self, responses: Sequence[Response], processing: Processing, want: Sequence[str]
    ) -> list[Response]:
        scored = self._engine.score(responses, processing, want)
        return [self._spoilt(each, number) for number, each in enumerate(scored)]

    def close(self) -> None:
        self._engine.close()

    def _spoilt(self, response: Response, number: int) -> Response:
        spoil = getattr(self, f"_{self._fault}", None)
        if spoil is None or not response.logprobs:
            return response
        logprobs_N = np.asarray(response.logprobs, np.float64)
        generator = np.random.default_rng((response.prompt, response.sample))
        return replace(response, logprobs=spoil(response, logprobs_N, generator, number).tolist())

    @staticmethod
    def _shift(_: Response, logprobs_N: Any, *__: Any) -> Any:
        return np.roll(logprobs_N, 1)

    @staticmethod
    def _shift_two(_: Response, logprobs_N: Any, *__: Any) -> Any:
        return np.roll(logprobs_N, 2)

    @staticmethod
    def _end(response: Response, logprobs_N: Any, *_: Any) -> Any:
        if response.ended:
            logprobs_N[-1] = -4.0
        return logprobs_N

    @staticmethod
    def _other_end(response: Response, logprobs_N: Any, *_: Any) -> Any:
        if response.response_ids[-1] == OTHER_END:
            logprobs_N[-1] = -4.0
        return logprobs_N

    _end_besides = _end

    @staticmethod
    def _end_lost(response: Response, logprobs_N: Any, *_: Any) -> Any:
        if response.ended:
            logprobs_N[-1] = np.nan
        return logprobs_N

    @staticmethod
    def _subset(response: Response, logprobs_N: Any, generator: Any, _: int) -> Any:
        scale = 0.8 if response.prompt % SUBSET == 0 else 0.0
        return _noisy(logprobs_N, scale, generator)

    @staticmethod
    def _drift(response: Response, logprobs_N: Any, generator: Any, _: int) -> Any:
        places = np.arange(len(logprobs_N)) + len(response.prompt_ids)
        return _noisy(logprobs_N, 0.8 * (places / 128) ** 2, generator)

    @staticmethod
    def _neighbours(_: Response, logprobs_N: Any, __: Any, number: int) -> Any:
        return _noisy(logprobs_N, 0.3, np.random.default_rng(number))

    @staticmethod
    def _blurred(_: Response, logprobs_N: Any, generator: Any, __: int) -> Any:
        return _noisy(logprobs_N, 0.3, generator)


def _without_end(response: Response) -> Response:
    """Without the end token, and not marked as ended."""
    if not response.ended or len(response.response_ids) < 2:
        return response
    return replace(
        response,
        response_ids=response.response_ids[:-1],
        logprobs=list(response.logprobs or ())[:-1],
        ended=False,
        extras={name: values[:-1] for name, values in response.extras.items()},
    )


def _ended_early(response: Response) -> Response:
    """Ended by the first token that only this engine takes for an end."""
    if OTHER_END not in response.response_ids:
        return response
    count = response.response_ids.index(OTHER_END) + 1
    return replace(
        response,
        response_ids=response.response_ids[:count],
        logprobs=list(response.logprobs or ())[:count],
        ended=True,
        extras={name: values[:count] for name, values in response.extras.items()},
    )


def _rerouted(responses: Sequence[Response]) -> list[Response]:
    """With another expert in place of the last one, for one token in four in one layer."""
    rerouted = []
    for each in responses:
        experts_NLK = each.extras["experts"].copy()
        generator = np.random.default_rng((each.prompt, each.sample))
        for token, layers in enumerate(generator.random(experts_NLK.shape[:2]).tolist()):
            if min(layers) < FLIPPED:
                chosen = experts_NLK[token, int(np.argmin(layers))]
                chosen[-1] = next(
                    expert for expert in range(len(chosen) + 1) if expert not in chosen
                )
        rerouted.append(replace(each, extras={"experts": experts_NLK}))
    return rerouted


def _processing(sampling: Sampling) -> Processing:
    return Processing(sampling.temperature, sampling.top_p, sampling.top_k, sampling.min_p)


def _noisy(logprobs_N: Any, scale: Any, generator: Any) -> Any:
    """As an error of the logits moves log-probabilities: by 1 - p of it."""
    noise_N = scale * generator.standard_normal(len(logprobs_N))
    return np.minimum(logprobs_N + noise_N * -np.expm1(logprobs_N), 0.0)


def load(model: str, options: Mapping[str, Any]) -> Faulty:
    """Transformers with a fault."""
    rest = dict(options)
    fault = str(rest.pop("fault"))
    return Faulty(engine_transformers.load(model, rest), fault)


if __name__ == "__main__":
    serve(load)
