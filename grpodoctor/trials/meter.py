"""What a run computes, so that two runs can be compared at equal cost.

Seconds depend on what else the machine does. The cost is therefore counted in *token passes*: one
for each sampled token (a decode), one for each token that is scored (a forward pass) and three for
each token of an update (forward and backward). Evaluations are not counted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from grpodoctor.trainer.loop import Trainer

_FORWARD, _FORWARD_AND_BACKWARD = 1, 3


class Meter:
    """Counts the token passes of a trainer.

    Args:
        trainer: a trainer before its first step; its methods are wrapped.
    """

    def __init__(self, trainer: Trainer) -> None:
        self.passes = 0
        """Token passes so far."""
        own: Any = trainer
        own.engine.generate = self._counting_generation(own.engine.generate)
        own._score = self._counting_scores(own._score)
        own.reference.logprobs = self._counting_scores(own.reference.logprobs)
        own.learner.update = self._counting_updates(own.learner.update)

    def _counting_generation(self, generate: Any) -> Any:
        def counted(*arguments: Any, **options: Any) -> Any:
            samples = generate(*arguments, **options)
            self.passes += int(samples.mask_BT.sum())
            return samples

        return counted

    def _counting_scores(self, score: Any) -> Any:
        def counted(samples: Any, *arguments: Any, **options: Any) -> Any:
            self.passes += _FORWARD * int(samples.mask_BT.sum())
            return score(samples, *arguments, **options)

        return counted

    def _counting_updates(self, update: Any) -> Any:
        def counted(batch: Any, rows_M: Any, *arguments: Any, **options: Any) -> Any:
            tokens = int(batch.samples.mask_BT[rows_M].sum())
            self.passes += _FORWARD_AND_BACKWARD * tokens
            return update(batch, rows_M, *arguments, **options)

        return counted
