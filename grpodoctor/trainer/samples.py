"""A batch of sampled responses as tensors.

    tokens_BL     [pad pad p p p | r r r E pad]
    attention_BL  [ 0   0  1 1 1 | 1 1 1 1  0 ]
                   prompt_width    T

Prompts are padded on the left, so that all responses start in the same column (L = prompt_width +
T). `E` is the end token.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch import Tensor

from grpodoctor.trainer.distributed.ranks import SINGLE_PROCESS, Ranks
from grpodoctor.trainer.moe.routers import ABSENT


class TopK(NamedTuple):
    """The K most likely tokens under the sampling distribution; zeros outside the mask."""

    ids_BTK: Tensor
    """int64."""
    logprobs_BTK: Tensor

    def widened(self, right: int) -> TopK:
        """A copy with `right` more columns of padding."""
        pad = torch.nn.functional.pad
        return TopK(*(pad(tensor, (0, 0, 0, right)) for tensor in self))


@dataclass(frozen=True, slots=True, kw_only=True)
class Samples:
    """Sampled responses with their prompts."""

    tokens_BL: Tensor
    """Left-padded prompt, response, right padding."""
    attention_BL: Tensor
    """True where a token is real."""
    prompt_width: int
    logprobs_BT: Tensor
    """Log-probabilities of the sampled tokens under the sampling distribution; 0 where `mask_BT` is
    false."""
    truncated_B: Tensor
    """True where the length limit was reached before an end token."""
    pad_id: int
    experts_BLDK: Tensor | None = None
    """The experts that the engine activated (see `moe.routes`), int16; None if not recorded."""
    top: TopK | None = None
    """The most likely tokens at each position; None if not requested."""

    @property
    def response_BT(self) -> Tensor:
        """The generated tokens."""
        return self.tokens_BL[:, self.prompt_width :]

    @property
    def mask_BT(self) -> Tensor:
        """True where a token was generated, including the end token."""
        return self.attention_BL[:, self.prompt_width :]

    def __len__(self) -> int:
        return self.tokens_BL.shape[0]

    def response_ids(self) -> list[list[int]]:
        """The generated ids of each row, including the end token."""
        lengths = self.mask_BT.sum(dim=1).tolist()
        rows = self.response_BT.tolist()
        return [row[:length] for row, length in zip(rows, lengths, strict=True)]

    def prompt_ids(self) -> list[Tensor]:
        """The ids of each row's prompt, without padding; neighbours with one prompt share them."""
        width = self.prompt_width
        tokens_BP, real_BP = self.tokens_BL[:, :width].cpu(), self.attention_BL[:, :width].cpu()
        differs = (tokens_BP[1:] != tokens_BP[:-1]) | (real_BP[1:] != real_BP[:-1])
        prompts: list[Tensor] = []
        for row, is_new in enumerate([True, *differs.any(dim=1).tolist()][: len(self)]):
            prompts.append(tokens_BP[row, real_BP[row]] if is_new else prompts[-1])
        return prompts

    def rows(self, indices: Sequence[int] | Tensor) -> Samples:
        """The rows at `indices`, in that order."""
        chosen = torch.as_tensor(indices, dtype=torch.long)
        return self._with_each(lambda tensor: tensor[chosen])

    def to(self, device: torch.device) -> Samples:
        """A copy on another device."""
        return self._with_each(lambda tensor: tensor.to(device))

    def _with_each(self, change: Callable[[Tensor], Tensor]) -> Samples:
        """A copy with every tensor changed."""
        return replace(
            self,
            tokens_BL=change(self.tokens_BL),
            attention_BL=change(self.attention_BL),
            logprobs_BT=change(self.logprobs_BT),
            truncated_B=change(self.truncated_B),
            experts_BLDK=None if self.experts_BLDK is None else change(self.experts_BLDK),
            top=None if self.top is None else TopK(*map(change, self.top)),
        )


def concatenate(parts: Sequence[Samples]) -> Samples:
    """The rows of all `parts`, padded to a common width; `parts` must not be empty."""
    prompt_width = max(part.prompt_width for part in parts)
    length = max(part.logprobs_BT.shape[1] for part in parts)
    widened = [_widen(part, prompt_width, length) for part in parts]
    experts = [part.experts_BLDK for part in widened if part.experts_BLDK is not None]
    return Samples(
        tokens_BL=torch.cat([part.tokens_BL for part in widened]),
        attention_BL=torch.cat([part.attention_BL for part in widened]),
        prompt_width=prompt_width,
        logprobs_BT=torch.cat([part.logprobs_BT for part in widened]),
        truncated_B=torch.cat([part.truncated_B for part in widened]),
        pad_id=parts[0].pad_id,
        experts_BLDK=torch.cat(experts) if len(experts) == len(parts) else None,
        top=concatenate_top([part.top for part in widened]),
    )


def _widen(part: Samples, prompt_width: int, length: int) -> Samples:
    left, right = prompt_width - part.prompt_width, length - part.logprobs_BT.shape[1]
    pad, experts_BLDK = torch.nn.functional.pad, part.experts_BLDK
    if experts_BLDK is not None:
        experts_BLDK = pad(experts_BLDK, (0, 0, 0, 0, left, right), value=ABSENT)
    return Samples(
        tokens_BL=pad(part.tokens_BL, (left, right), value=part.pad_id),
        attention_BL=pad(part.attention_BL, (left, right), value=False),
        prompt_width=prompt_width,
        logprobs_BT=pad(part.logprobs_BT, (0, right)),
        truncated_B=part.truncated_B,
        pad_id=part.pad_id,
        experts_BLDK=experts_BLDK,
        top=None if part.top is None else part.top.widened(right),
    )


def concatenate_top(parts: Sequence[TopK | None]) -> TopK | None:
    """The rows of all parts, which have the same width; None if any part has no top tokens."""
    present = [part for part in parts if part is not None]
    if len(present) < len(parts):
        return None
    return TopK(*(torch.cat(columns) for columns in zip(*present, strict=True)))


def sample_on_ranks(
    count: int,
    draw: Callable[[range], Samples],
    device: torch.device,
    ranks: Ranks = SINGLE_PROCESS,
) -> Samples:
    """Sample a batch of responses, a share of the rows on each rank.

    `draw` samples the given rows; its errors are raised on every rank.
    """
    rows = ranks.rows(count)
    if ranks.world == 1:
        return draw(rows)
    parts = ranks.gather(lambda: draw(rows).to(torch.device("cpu")) if rows else None)
    return concatenate([part for part in parts if part is not None]).to(device)
