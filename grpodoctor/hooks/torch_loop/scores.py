"""Log-probabilities and entropies of responses from a loop's logits or hidden states."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from grpodoctor.errors import DataError

if TYPE_CHECKING:
    from torch import Tensor

    from grpodoctor.measure.hidden import Head

TokenScores = tuple[NDArray[np.float32], NDArray[np.float32]]
"""Log-probabilities and entropies, shape (B, T) each; 0 outside the mask."""


def scores_of_logits(
    logits_BTV: Tensor, tokens_BT: NDArray[Any], mask_BT: NDArray[np.bool_], temperature: float
) -> TokenScores:
    """Score the tokens under the mask; without gradient, and without a copy of the logits.

    Args:
        logits_BTV: the logits at position t are those from which token t is predicted.
        tokens_BT: token ids.
        mask_BT: tokens to score.
        temperature: divides the logits.

    Raises:
        DataError: if the shapes are inconsistent.
    """
    from grpodoctor.measure.logits import entropy_and_logprobs

    _check_shape("logits", logits_BTV, tokens_BT)
    scores = _blank(tokens_BT)
    for row, span in _spans(mask_BT):
        logits_NV = logits_BTV[row, span]
        ids_N = _ids(tokens_BT[row, span], logits_NV)
        entropy_N, logprobs_N = entropy_and_logprobs(logits_NV.detach(), ids_N, temperature)
        scores[0][row, span], scores[1][row, span] = logprobs_N.cpu(), entropy_N.cpu()
    return _masked(scores, mask_BT)


def scores_of_hidden(
    hidden_BTH: Tensor,
    lm_head: Any,
    tokens_BT: NDArray[Any],
    mask_BT: NDArray[np.bool_],
    temperature: float,
) -> TokenScores:
    """Score the tokens under the mask from the states before the output layer.

    Args:
        hidden_BTH: the states at position t are those from which token t is predicted.
        lm_head: the output layer: a module, its weight of shape (V, H), or a `Head`.
        tokens_BT: token ids.
        mask_BT: tokens to score.
        temperature: divides the logits.

    Raises:
        DataError: if the shapes are inconsistent.
    """
    import torch

    from grpodoctor.measure.hidden import score_hidden

    _check_shape("hidden states", hidden_BTH, tokens_BT)
    head, scores = _head_of(lm_head), _blank(tokens_BT)
    with torch.no_grad():
        mask = torch.as_tensor(mask_BT, device=hidden_BTH.device)
        hidden_NH = hidden_BTH.detach()[mask].to(head.weight_VD.dtype)
        ids_N = _ids(tokens_BT[mask_BT], head.weight_VD.t())
        for values_BT, values_N in zip(
            scores, score_hidden(hidden_NH, head, ids_N, temperature), strict=True
        ):
            values_BT[mask_BT] = values_N.cpu()
    return scores


def _head_of(lm_head: Any) -> Head:
    from grpodoctor.measure.hidden import Head

    if isinstance(lm_head, Head):
        return lm_head
    weight_VD, bias_V = getattr(lm_head, "weight", lm_head), getattr(lm_head, "bias", None)
    return Head(weight_VD.detach(), None if bias_V is None else bias_V.detach())


def _check_shape(what: str, tensor: Tensor, tokens_BT: NDArray[Any]) -> None:
    if tensor.ndim != 3 or tuple(tensor.shape[:2]) != tokens_BT.shape:
        raise DataError(
            f"{what} of shape {tuple(tensor.shape)} do not fit tokens of {tokens_BT.shape}",
            remedy="give one vector per response token: drop the prompt, shift by one position",
        )


def _blank(tokens_BT: NDArray[Any]) -> TokenScores:
    return np.zeros(tokens_BT.shape, np.float32), np.zeros(tokens_BT.shape, np.float32)


def _spans(mask_BT: NDArray[np.bool_]) -> Iterator[tuple[int, slice]]:
    """The rows with tokens, and the positions from the first to the last of them."""
    for row in np.flatnonzero(mask_BT.any(axis=1)).tolist():
        places = np.flatnonzero(mask_BT[row])
        yield row, slice(int(places[0]), int(places[-1]) + 1)


def _ids(tokens_N: NDArray[Any], logits_NV: Tensor) -> Tensor:
    """The ids on the device of the logits; ids of padding between them become 0."""
    import torch

    ids_N = np.where((tokens_N >= 0) & (tokens_N < logits_NV.shape[1]), tokens_N, 0)
    return torch.as_tensor(ids_N, dtype=torch.long, device=logits_NV.device)


def _masked(scores: TokenScores, mask_BT: NDArray[np.bool_]) -> TokenScores:
    for each_BT in scores:
        each_BT[~mask_BT] = 0
    return scores
