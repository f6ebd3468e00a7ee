"""The protocols that engines implement."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol, runtime_checkable

import numpy as np

from .datatypes import Processing, Response, Sampling


class Engine(Protocol):
    """A loaded model that samples and scores."""

    def describe(self) -> dict[str, Any]:
        """What the engine is and how it is configured.

        Required keys: `name`, `version`, `model`, `dtype`, `device`, `layout` (a dict of parallel
        degrees, such as `{"tensor_parallel": 2}`), `vocab_size`, `end_ids`, `begin_id` (or None),
        `context` (longest sequence), `logprobs` (`processed` if the log-probabilities from `sample`
        include temperature and truncation, otherwise `raw`), and `settings` (any other facts).
        Optional: `processors`, the names of the contract's `PROCESSORS` that `sample` applies.
        """

    def tokenise(self, prompts: Sequence[Mapping[str, Any]]) -> list[list[int]]:
        """The token ids that this engine feeds to its model for each prompt."""

    def sample(
        self, prompts: Sequence[Sequence[int]], sampling: Sampling, want: Sequence[str]
    ) -> list[Response]:
        """`sampling.samples` responses per prompt, grouped by prompt, in order.

        `Response.prompt` is the index in `prompts`.
        """

    def score(
        self, responses: Sequence[Response], processing: Processing, want: Sequence[str]
    ) -> list[Response]:
        """The same responses in the same order, with this engine's log-probabilities."""

    def close(self) -> None:
        """Free the engine's resources."""


@runtime_checkable
class RecordedEngine(Protocol):
    """An engine that returns recorded responses; it receives no prompts and samples nothing."""

    def recorded(self) -> Sequence[Response]:
        """All responses, grouped by prompt, with their prompt and sample indices."""


@runtime_checkable
class ReplayEngine(Protocol):
    """An engine that can force the experts of a mixture-of-experts model."""

    def replay(
        self, responses: Sequence[Response], processing: Processing, want: Sequence[str]
    ) -> list[Response]:
        """Like `Engine.score`, with the experts in `extras["experts"]` instead of the routers' own.

        A row holds the experts of the token that predicts the row's token, so the first row applies
        to the last prompt token. Earlier prompt tokens are routed freely, and so is a layer in
        which any expert of a row is -1. The weights of the forced experts are the router's own,
        over those experts only. `experts`, if wanted, are the experts that were actually used.
        """


@runtime_checkable
class AlterableEngine(Protocol):
    """An engine whose model can compute differently for a while, to test a suspected cause."""

    def what_ifs(self) -> list[dict[str, Any]]:
        """The edits that the model allows: `{"name", "values", "kind"}`.

        The kind is `number` or `integer` if values between those listed make sense, else `choice`.
        """

    def altered(self, edits: Sequence[tuple[str, Any]]) -> AbstractContextManager[None]:
        """Score with these edits inside the block.

        Raises:
            InapplicableError: if an edit does not fit the model.
        """


@runtime_checkable
class SensitiveEngine(Protocol):
    """An engine that measures what changes at each place of its model do to log-probabilities."""

    def sensitivities(
        self, responses: Sequence[Response], processing: Processing, tokens: int
    ) -> dict[str, np.ndarray]:
        """Arrays of about `tokens` tokens, N of them, in one order.

        - `token_N`: the index of each among all tokens of the responses
        - `logprob_N`, `entropy_N`: of the processing's temperature; and `spread_N`, the squared
          length of the gradient of the log-probability with respect to the logits
        - `features/PLACE`: features (N, S) whose products are the covariance of the tokens under an
          unknown change at a place; `features/PLACE/norms`, of its norms alone
        - `effects/PLACE`: the effects (C, N) of large changes there, or in all places of a kind

        A place is `embedding`, `head`, or a block such as `3.self_attn`.

        Raises:
            InapplicableError: if the model allows no gradients.
        """


@runtime_checkable
class FirstOrderEngine(Protocol):
    """An engine that estimates what generic edits of its model do to log-probabilities."""

    def first_order(
        self, responses: Sequence[Response], processing: Processing, tokens: int
    ) -> tuple[list[dict[str, Any]], dict[str, np.ndarray]]:
        """The edits, `{"name", "attribute", "value", "kind"}`, and arrays of about `tokens` tokens.

        - `token_N`: the index of each among all tokens of the responses
        - `logprob_N`, `entropy_N`: of the processing's temperature
        - `effects_EN`: the effect of each edit, to first order; of a `number`, that of adding 1 to
          it. The edits without an estimate are the last ones, and have no row.

        Raises:
            InapplicableError: if the model allows no gradients.
        """
