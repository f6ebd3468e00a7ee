"""Scores of tokens from a model's hidden states, without the logits of a whole batch."""

from grpodoctor.measure.hidden.head import Head, TokenScores
from grpodoctor.measure.hidden.score import score_hidden

__all__ = ["Head", "TokenScores", "score_hidden"]
