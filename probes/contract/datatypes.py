"""Sampling settings, responses, refusals and constants of the contract."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

CONTRACT_VERSION = 1
SHARD_RESPONSES = 256
"""Responses per shard: what a killed engine repeats, and what a comparison holds in memory."""
REFUSED = 2
"""Exit code of a program whose answer says why it cannot do what was requested."""

TEMPERATURES = (0.25, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.1, 1.2, 1.3, 1.5, 1.75, 2.0, 3.0)
"""Temperatures of the columns of `at_temperature_NT`, requested by `want=temperatures`."""

LIKELIEST = 20
"""Tokens in a row of `likeliest_NM`, or the size of a smaller vocabulary."""

WANTS = ("entropy", "ranks", "temperatures", "experts")
"""What a task can request besides log-probabilities; an engine returns what it can.

- `entropy`: `entropy_N`, entropy in nats of the distribution that the log-probability refers to
- `ranks`: `rank_N`, the number of more likely tokens; `mass_above_N`, their total probability;
  `top_logprob_N`, the log-probability of the most likely token; `likeliest_NM`, the `LIKELIEST`
  most likely tokens, most likely first, and `likeliest_logprob_NM`, their log-probabilities
- `temperatures`: `at_temperature_NT`, log-probabilities at each of `TEMPERATURES`, from raw logits
- `experts`: `experts_NLK`, ids of the experts to which the token that *predicts* this token was
  routed, -1 where not known; and `router_margin_NL`, if the router's logits are available: the
  lowest logit of the chosen experts minus the highest logit of the others
"""


PROCESSORS: Mapping[str, Any] = {
    "repetition_penalty": 1.0,
    "presence_penalty": 0.0,
    "frequency_penalty": 0.0,
    "min_tokens": 0,
    "logit_bias": (),
}
"""Fields of `Sampling` that an engine may not support, with the values that change nothing. An
engine lists those that it applies as `processors` in its description."""


class RefusalError(Exception):
    """The engine cannot do what was requested; the message is for the user.

    Args:
        what: what is wrong, a clause.
        remedy: what the user can do about it, in the imperative.
    """

    def __init__(self, what: str, remedy: str = "") -> None:
        super().__init__(what)
        self.what, self.remedy = what, remedy


class InapplicableError(RefusalError):
    """A what-if edit does not fit the model: only its task fails, the program goes on."""


@dataclass(frozen=True)
class Sampling:
    """Sampling settings. `top_k=0`, `top_p=1` and `min_p=0` disable truncation."""

    samples: int = 8
    """Responses per prompt."""
    max_tokens: int = 512
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    seed: int = 0
    stop_ids: tuple[int, ...] = ()
    """Token ids that end a response, in addition to the engine's own."""
    ignore_end: bool = False
    """Sample exactly `max_tokens` tokens."""
    repetition_penalty: float = 1.0
    """On tokens of prompt and response: positive logits are divided by it, others multiplied."""
    presence_penalty: float = 0.0
    """Subtracted from the logits of tokens of the response so far."""
    frequency_penalty: float = 0.0
    """Subtracted for each occurrence in the response so far."""
    min_tokens: int = 0
    """End tokens are excluded before this position of the response."""
    logit_bias: tuple[tuple[int, float], ...] = ()
    """Pairs of a token and the number added to its logit."""

    def processors(self) -> dict[str, Any]:
        """The active settings that change logits before temperature and truncation, by name."""
        values = {name: getattr(self, name) for name in PROCESSORS}
        return {name: value for name, value in values.items() if value != PROCESSORS[name]}


@dataclass(frozen=True)
class Processing:
    """Temperature and truncation applied to logits before their log-softmax."""

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0

    @classmethod
    def of(cls, sampling: Sampling) -> Processing:
        """The processing under which responses are sampled."""
        return cls(sampling.temperature, sampling.top_p, sampling.top_k, sampling.min_p)


@dataclass
class Response:
    """One response and an engine's values for its N tokens; None where the engine has no value."""

    prompt_ids: Sequence[int]
    response_ids: Sequence[int]
    logprobs: Sequence[float] | None = None
    """Of the N tokens under this engine; NaN where the engine returned none."""
    prompt: int = 0
    """Index of the prompt in the prompts file."""
    sample: int = 0
    """Index of the sample among those of its prompt."""
    ended: bool = False
    """Whether the response ended with an end token (its last token) and not at the limit."""
    cached: int = 0
    """Prompt tokens that came from a prefix cache."""
    extras: dict[str, np.ndarray] = field(default_factory=dict)
    """Arrays of `WANTS` by name, with N as the first axis."""


def with_defaults(
    options: Mapping[str, Any], defaults: Mapping[str, Any], engine: str
) -> dict[str, Any]:
    """All options of an engine, with defaults for those not given.

    Raises:
        RefusalError: if an option is not among the defaults.
    """
    for name in options:
        if name not in defaults:
            raise RefusalError(
                f"{engine} has no option {name[:60]!r}", f"use one of {', '.join(defaults)}"
            )
    return {**defaults, **options}


def response_seed(sampling: Sampling, prompt: int, sample: int) -> int:
    """A seed below 2⁶² for one response of `Engine.sample`, independent of the shard size.

    The seed of a shard is the task's seed plus the index of the shard's first prompt.
    """
    entropy = ((sampling.seed + prompt) % 2**63, sample)
    return int(np.random.SeedSequence(entropy).generate_state(1, np.uint64)[0] >> np.uint64(2))
