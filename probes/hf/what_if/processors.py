"""Edits of inputs and logits: attended padding, penalties, logit bias, minimum length.

Shape suffixes: N tokens, V vocabulary entries.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from contract import InapplicableError, Response, Sampling
from torch import Tensor

from hf.what_if.repeated_text import with_dry, without_repeated


@dataclass(frozen=True)
class ProcessorEdits:
    """Changes of what the model reads and of its logits; the defaults change nothing."""

    padding: Any = None
    """`[token, width]`: attended padding before each prompt that is shorter than the width."""
    prompt_tokens: Any = None
    """Pairs of a place and what every prompt has there: a token, or a list of tokens. -1 stands for
    none, -2 for the prompt's own token. Places below 0 count from the end of the prompt. Or such
    pairs for each prompt, after its number: `["3", [[2, 7]]]`. One pair may change a whole prompt:
    `["last", 9]` or `["first", 9]` of its tokens, `["without", [2, 3]]` its second third,
    `["all", ids]` in its place, `["after", ids]` behind others."""
    masked_tokens: Any = None
    """Ids of tokens that no other token sees, as if they were padding."""
    position_gap: int = 0
    """Positions that are skipped between prompt and response."""
    position_start: int = 0
    """Position of the first token."""
    padded_positions: int = 0
    """Positions count padding on the left up to this width, without a mask for it."""
    position_limit: int = 0
    """Later tokens have this position, the last one of a table; 0 for none."""
    position_jump: Any = 0
    """`["again", 16]`: positions count from 0 again at this place, as after a cached prefix whose
    length is lost; `["1", 16]`: they skip one from this place on."""
    repetition_penalty: float = 1.0
    """On tokens of prompt and response, as in transformers and vLLM."""
    recent_repetition: Any = None
    """`["8", penalty]`: a repetition penalty on the last tokens of prompt and response only."""
    part_repetition: Any = None
    """`["prompt", penalty]`: a repetition penalty on the prompt's tokens only; or on those of the
    `response`."""
    presence_penalty: float = 0.0
    """Subtracted for tokens of the response so far."""
    frequency_penalty: float = 0.0
    """Subtracted for each occurrence in the response so far."""
    part_presence: Any = None
    """`["both", penalty]`: a presence penalty that counts the prompt, too; or the `prompt` only, or
    the last tokens of both, `["64", penalty]`."""
    part_frequency: Any = None
    """The same for a frequency penalty."""
    no_repeat_ngram: int = 0
    """Tokens are excluded that would end an n-gram of this size for a second time; 0 for none."""
    dry_penalty: Any = None
    """`["2/1.75", multiplier]`: the penalty DRY from repetitions of 2 tokens on, with this base."""
    logit_bias: Any = None
    """Pairs of a token and the number added to its logit."""
    min_tokens: int = 0
    """End tokens are excluded before this position."""
    typical_p: float = 1.0
    """Locally typical sampling keeps tokens with this total probability."""
    epsilon_cutoff: float = 0.0
    """Tokens with a smaller probability are dropped, but for the likeliest one."""
    top_n_sigma: float = 0.0
    """Tokens are dropped whose logit is further below the largest one than this many standard
    deviations of the logits; 0 drops none."""
    uniform_share: float = 0.0
    """Share of a uniform distribution over the vocabulary in a mixture with the model's."""
    padded_vocabulary: int = 0
    """Number of further entries with a logit of 0, as an engine that pads the vocabulary has."""
    vocabulary_shards: int = 0
    """Number of equal parts of the vocabulary; a token's value is normalized over its own part."""

    @classmethod
    def of(cls, sampling: Sampling) -> ProcessorEdits:
        """The processors with which responses are sampled."""
        return cls(**sampling.processors())

    @property
    def changes_logits(self) -> bool:
        """Whether logits change."""
        plain: dict[str, Any] = {**dict.fromkeys(POSITIONS, 0), **dict.fromkeys(_READ)}
        return replace(self, **plain) != ProcessorEdits()

    def mask(self, ids_BL: Tensor) -> Tensor | None:
        """1 for tokens that others see, shape (B, L); None if they see all before them."""
        if self.masked_tokens is None:
            return None
        masked = torch.tensor([int(token) for token in self.masked_tokens], device=ids_BL.device)
        return (~torch.isin(ids_BL, masked)).long()

    def positions(self, responses: Sequence[Response], ids_BL: Tensor) -> Tensor | None:
        """The positions of tokens that are padded on the right; None if they are as usual."""
        if not any(getattr(self, name) for name in POSITIONS):
            return None
        place_L = torch.arange(ids_BL.shape[1])
        prompts_B1 = torch.tensor([[len(each.prompt_ids)] for each in responses])
        first_B1 = (int(self.padded_positions) - prompts_B1).clamp(min=0)
        moved_BL = int(self.position_gap) * (place_L >= prompts_B1) + int(self.position_start)
        position_BL = place_L + moved_BL + first_B1
        if self.position_jump:
            far, place = str(self.position_jump[0]), int(self.position_jump[1])
            position_BL = position_BL + (-place if far == "again" else int(far)) * (
                place_L >= place
            )
        return (
            position_BL.clamp(max=int(self.position_limit)) if self.position_limit else position_BL
        )

    def read(self, responses: Sequence[Response]) -> list[Response]:
        """The responses with the prompts that the model reads."""
        if self.prompt_tokens is not None:
            responses = [
                replace(each, prompt_ids=_with_tokens(each.prompt_ids, self._replaced(each)))
                for each in responses
            ]
        if self.padding is None:
            return list(responses)
        token, width = self.padding
        counts = [max(0, int(width) - len(each.prompt_ids)) for each in responses]
        return [
            replace(each, prompt_ids=[token] * count + list(each.prompt_ids))
            for each, count in zip(responses, counts, strict=True)
        ]

    def _replaced(self, response: Response) -> Sequence[tuple[int, Any]]:
        """Places of a response's prompt with the tokens that it has there."""
        listed: Any = self.prompt_tokens
        if listed and isinstance(listed[0][0], str) and listed[0][0].isdigit():
            listed = dict(listed).get(str(response.prompt), ())
        pairs: Sequence[tuple[int, Any]] = listed
        return pairs

    def processed(self, logits_NV: Tensor, history: History, ends: Sequence[int]) -> Tensor:
        """The logits after all processors, in vLLM's order."""
        logits_NV = logits_NV.float().clone()
        logits_NV = self._with_penalties(logits_NV, history)
        for token, bias in self.logit_bias or ():
            logits_NV[:, int(token)] += float(bias)
        if self.min_tokens:
            early_N = history.position_N < self.min_tokens
            for token in ends:
                logits_NV[:, token] = logits_NV[:, token].masked_fill(early_N, -torch.inf)
        if self.typical_p < 1:
            logits_NV = _typical(logits_NV, self.typical_p)
        if self.epsilon_cutoff or self.top_n_sigma:
            logits_NV = self._cut(logits_NV)
        if self.uniform_share:
            logits_NV = _with_uniform(logits_NV, self.uniform_share)
        if self.padded_vocabulary:
            further = logits_NV.new_zeros(len(logits_NV), int(self.padded_vocabulary))
            logits_NV = torch.cat([logits_NV, further], dim=1)
        if self.vocabulary_shards:
            logits_NV = _own_part(logits_NV, history.ids_N, int(self.vocabulary_shards))
        return logits_NV

    def _cut(self, logits_NV: Tensor) -> Tensor:
        """The logits without the tokens that the two cutoffs drop."""
        most_N1 = logits_NV.amax(dim=-1, keepdim=True)
        if self.epsilon_cutoff:
            rare_NV = logits_NV.softmax(dim=-1) < self.epsilon_cutoff
            logits_NV = logits_NV.masked_fill(rare_NV & (logits_NV < most_N1), -torch.inf)
        if self.top_n_sigma:
            known_NV = logits_NV.where(logits_NV.isfinite(), torch.nan)
            squares_NV = (known_NV - known_NV.nanmean(dim=-1, keepdim=True)).square()
            count_N1 = known_NV.isfinite().sum(dim=-1, keepdim=True).clamp(min=2)
            spread_N1 = (squares_NV.nansum(dim=-1, keepdim=True) / (count_N1 - 1)).sqrt()
            far_NV = logits_NV < most_N1 - self.top_n_sigma * spread_N1
            logits_NV = logits_NV.masked_fill(far_NV, -torch.inf)
        return logits_NV

    def _with_penalties(self, logits_NV: Tensor, history: History) -> Tensor:
        """The logits after the penalties on tokens that occurred."""
        if self.repetition_penalty != 1:
            seen_NV = history.prompt_NV + history.response_NV > 0
            logits_NV = _penalized(logits_NV, seen_NV, self.repetition_penalty)
        if self.recent_repetition is not None:
            last, penalty = self.recent_repetition
            seen_NV = history.recent(int(last), logits_NV) > 0
            logits_NV = _penalized(logits_NV, seen_NV, float(penalty))
        if self.part_repetition is not None:
            part, penalty = self.part_repetition
            counts_NV = history.prompt_NV if part == "prompt" else history.response_NV
            logits_NV = _penalized(logits_NV, counts_NV > 0, float(penalty))
        if self.part_presence is not None:
            part, penalty = self.part_presence
            logits_NV = logits_NV - float(penalty) * (history.counted(part, logits_NV) > 0)
        if self.part_frequency is not None:
            part, penalty = self.part_frequency
            logits_NV = logits_NV - float(penalty) * history.counted(part, logits_NV)
        logits_NV = logits_NV - self.frequency_penalty * history.response_NV
        logits_NV = logits_NV - self.presence_penalty * (history.response_NV > 0)
        return self._without_repetitions(logits_NV, history)

    def _without_repetitions(self, logits_NV: Tensor, history: History) -> Tensor:
        """The logits after what forbids, or penalizes, repeated sequences of tokens."""
        if self.no_repeat_ngram:
            logits_NV = without_repeated(logits_NV, history.before, int(self.no_repeat_ngram))
        if self.dry_penalty is not None:
            allowed, base = str(self.dry_penalty[0]).split("/")
            numbers = int(allowed), float(base), float(self.dry_penalty[1])
            logits_NV = with_dry(logits_NV, history.before, *numbers)
        return logits_NV


POSITIONS = (
    "padded_positions", "position_gap", "position_jump", "position_limit", "position_start"
)  # fmt: skip
"""Edits of positions; they leave the logits' processors alone."""
_READ = ("padding", "prompt_tokens", "masked_tokens")
"""Edits of the tokens that are read; they leave the processors alone as well."""


def _with_tokens(prompt: Sequence[int], replaced: Sequence[tuple[int, Any]]) -> list[int]:
    """A prompt with other tokens at some places, with more of them, or without these."""
    if replaced and isinstance(replaced[0][0], str):
        return _whole(prompt, *replaced[0])
    parts = [[int(token)] for token in prompt]
    for place, tokens in replaced:
        if -len(parts) <= place < len(parts):
            listed = tokens if isinstance(tokens, list) else [tokens]
            parts[place] = [prompt[place] if each == KEPT else int(each) for each in listed]
    ids = [token for part in parts for token in part if token != LOST]
    if not ids:
        raise InapplicableError("a prompt without tokens cannot be read")
    return ids


def _whole(prompt: Sequence[int], change: str, value: Any) -> list[int]:
    """A whole prompt cut, without a part, behind other tokens, or replaced by these."""
    if change in ("last", "first"):
        return list(prompt[-int(value) :] if change == "last" else prompt[: int(value)])
    if change == "without":
        part, count = map(int, value)
        size = len(prompt) // count
        kept = [*prompt[: (part - 1) * size], *prompt[part * size :]]
        if not kept:
            raise InapplicableError("a prompt without tokens cannot be read")
        return kept
    if change in ("all", "after"):
        return [*map(int, value), *(prompt if change == "after" else ())]
    raise InapplicableError(f"there is no change {change!r} of a prompt")


LOST, KEPT = -1, -2
"""In place of a token: the prompt has none at this place, or its own one."""


def _penalized(logits_NV: Tensor, seen_NV: Tensor, penalty: float) -> Tensor:
    """Seen tokens with a repetition penalty, as in transformers and vLLM."""
    factor_NV = torch.where(logits_NV > 0, 1 / penalty, penalty)
    return torch.where(seen_NV, logits_NV * factor_NV, logits_NV)


def _own_part(logits_NV: Tensor, ids_N: Tensor | None, count: int) -> Tensor:
    """The logits of the part of the vocabulary that has a row's token."""
    if ids_N is None:
        raise InapplicableError("the tokens of these logits are unknown")
    width = -(-logits_NV.shape[1] // count)
    parts_V = torch.arange(logits_NV.shape[1], device=logits_NV.device) // width
    return logits_NV.masked_fill(parts_V[None] != ids_N[:, None] // width, -torch.inf)


def _with_uniform(logits_NV: Tensor, share: float) -> Tensor:
    """A mixture with the uniform distribution over the vocabulary, in log-probabilities."""
    probs_NV = logits_NV.softmax(dim=-1)
    return ((1 - share) * probs_NV + share / logits_NV.shape[1]).log()


def _typical(logits_NV: Tensor, mass: float) -> Tensor:
    """Without the tokens whose surprise is furthest from the entropy (Meister et al., 2022)."""
    logprobs_NV = logits_NV.log_softmax(dim=-1)
    entropy_N1 = -(logprobs_NV.exp() * logprobs_NV).nansum(dim=-1, keepdim=True)
    order_NV = (logprobs_NV + entropy_N1).abs().argsort(dim=-1)
    sorted_NV = logprobs_NV.gather(1, order_NV).exp()
    dropped_NV = sorted_NV.cumsum(dim=-1) - sorted_NV >= mass
    return logits_NV.masked_fill(
        torch.zeros_like(dropped_NV).scatter(1, order_NV, dropped_NV), -torch.inf
    )


@dataclass(frozen=True)
class History:
    """What precedes each token of a chunk."""

    prompt_NV: Tensor
    """How often each vocabulary entry occurs in the prompt."""
    response_NV: Tensor
    """The same for the response so far."""
    position_N: Tensor
    """Position in the response."""
    before: Sequence[Sequence[int]] = ()
    """The ids before each token, in order; empty while sampling."""
    ids_N: Tensor | None = None
    """The tokens themselves; None while sampling."""

    def recent(self, last: int, like_NV: Tensor) -> Tensor:
        """How often vocabulary entries are among the last tokens before each token."""
        counts_NV = torch.zeros_like(like_NV)
        for row, ids in enumerate(self.before):
            _count(counts_NV[row], ids[-last:])
        return counts_NV

    def counted(self, part: str, like_NV: Tensor) -> Tensor:
        """How often vocabulary entries are in a part of what precedes each token."""
        if part == "both":
            return self.prompt_NV + self.response_NV
        return self.prompt_NV if part == "prompt" else self.recent(int(part), like_NV)


class SamplingProcessors:
    """The processors of responses that are being sampled, with what each contains so far.

    Args:
        sampling: the settings.
        prompts: ids of each response's prompt, R of them.
        ends: tokens that end a response.
    """

    def __init__(
        self, sampling: Sampling, prompts: Sequence[Sequence[int]], ends: Sequence[int]
    ) -> None:
        self._edits, self._ends, self._prompts = ProcessorEdits.of(sampling), ends, prompts
        self._history: History | None = None

    def processed(self, logits_RV: Tensor) -> Tensor:
        """The logits of each response's next token after the processors."""
        if not self._edits.changes_logits:
            return logits_RV
        if self._history is None:
            self._history = self._begun(logits_RV)
        return self._edits.processed(logits_RV, self._history, self._ends)

    def _begun(self, logits_RV: Tensor) -> History:
        prompt_RV = torch.zeros(logits_RV.shape, device=logits_RV.device)
        for row, ids in enumerate(self._prompts):
            _count(prompt_RV[row], ids)
        start_R = torch.zeros(len(self._prompts), dtype=torch.long, device=logits_RV.device)
        return History(prompt_RV, torch.zeros_like(prompt_RV), start_R)

    def append(self, ids_R: Tensor) -> None:
        """Note the next token of each response."""
        past = self._history
        if past is not None:
            ones_R1 = torch.ones(len(ids_R), 1, device=ids_R.device)
            response_RV = past.response_NV.scatter_add(1, ids_R[:, None], ones_R1)
            self._history = History(past.prompt_NV, response_RV, past.position_N + 1)

    def keep(self, rows_A: Tensor) -> None:
        """Continue with some of the responses."""
        past = self._history
        if past is not None:
            kept = (past.prompt_NV[rows_A], past.response_NV[rows_A], past.position_N[rows_A])
            self._history = History(*kept)


def histories(
    responses: Sequence[Response], rows: int, vocabulary: int, device: torch.device
) -> Iterator[History]:
    """The history of consecutive chunks of `rows` tokens of all responses."""
    places = [
        (number, place)
        for number, response in enumerate(responses)
        for place in range(len(response.response_ids))
    ]
    for start in range(0, len(places), rows):
        chunk = places[start : start + rows]
        prompt_NV = torch.zeros(len(chunk), vocabulary, device=device)
        response_NV = torch.zeros(len(chunk), vocabulary, device=device)
        for row, (number, place) in enumerate(chunk):
            response = responses[number]
            _count(prompt_NV[row], response.prompt_ids)
            _count(response_NV[row], response.response_ids[:place])
        position_N = torch.tensor([place for _, place in chunk], device=device)
        before = [_before(responses[number], place) for number, place in chunk]
        ids = [responses[number].response_ids[place] for number, place in chunk]
        ids_N = torch.tensor([int(token) for token in ids], device=device)
        yield History(prompt_NV, response_NV, position_N, before, ids_N)


def _before(response: Response, place: int) -> list[int]:
    """The last tokens before a place of a response."""
    drawn = list(response.response_ids[max(0, place - MOST_RECENT) : place])
    return [*response.prompt_ids[-MOST_RECENT:], *drawn][-MOST_RECENT:]


MOST_RECENT = 512
"""The longest window of a repetition penalty that is tried."""


def _count(counts_V: Tensor, ids: Sequence[int]) -> None:
    tokens = torch.as_tensor(ids, dtype=torch.long, device=counts_V.device)
    counts_V.index_add_(0, tokens, torch.ones(len(tokens), device=counts_V.device))
