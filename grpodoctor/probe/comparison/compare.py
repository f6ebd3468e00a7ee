"""Compare two engines on the same tokens: one pass over their shards, in bounded memory.

Each figure covers all tokens or all responses; it is not a mean of per-shard figures. Sums are
exact and merge, so the number and size of shards do not matter. `grpodoctor.measure.mismatch`
defines and computes the figures.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from grpodoctor.errors import EngineError
from grpodoctor.measure.mismatch import PER_RESPONSE, PairMoments, pair_readings
from grpodoctor.probe.comparison.bins import POSITION_EDGES, PROBABILITY_EDGES, BinTally
from grpodoctor.probe.comparison.bootstrap import FEWEST_PROMPTS, Bootstrap
from grpodoctor.probe.comparison.correction_effects import EffectTally
from grpodoctor.probe.comparison.experts import ExpertTally
from grpodoctor.probe.comparison.pair import ShardPair
from grpodoctor.probe.comparison.worst import PromptGaps, Scatter, Unmeasured, WorstResponses
from grpodoctor.probe.contract import Shard
from grpodoctor.probe.engines.shards import read_pairs
from grpodoctor.probe.results.results import Comparison, Interval
from grpodoctor.vocabulary.values import Mean, Quantiles, Rate, Reading, merge_all, scalar

_QUANTILES = (0.5, 0.9, 0.99)
_NLL_GAP = "mismatch/nll_gap"


def compare(
    sampled: Path, scored: Path, *, prompts: Sequence[str] | None = None, seed: int = 0
) -> Comparison:
    """Compare two engines' log-probabilities of the same tokens.

    Args:
        sampled: folder of the sampler's shards: responses and their log-probabilities.
        scored: folder of the learner's shards: log-probabilities of the same tokens.
        prompts: texts of the prompts, shown with the worst responses.
        seed: seed of the bootstrap and of the tokens in the scatter plot.

    Raises:
        EngineError: if a shard is missing, damaged or has other tokens, or there are no responses.
    """
    return compare_shards(read_pairs(sampled, scored), str(sampled), prompts=prompts, seed=seed)


def compare_shards(
    pairs: Iterable[tuple[Shard, Shard]],
    where: str,
    *,
    prompts: Sequence[str] | None = None,
    seed: int = 0,
) -> Comparison:
    """Like `compare`, for shards in memory.

    Args:
        pairs: the sampler's and the learner's shard of the same tokens; each is read once.
        where: origin of the shards, for error messages.
        prompts: as for `compare`.
        seed: as for `compare`.

    Raises:
        EngineError: if there are no responses.
    """
    tally = _Tally(seed)
    for sampled, scored in pairs:
        tally.add(ShardPair.of(sampled, scored))
    if not tally.tokens:
        raise EngineError(
            "nothing to compare: all responses are empty",
            where=where,
            remedy="check the sampler's log and give prompts that it answers",
        )
    return tally.comparison(prompts)


class _Tally:
    """Sums over the shards read so far."""

    def __init__(self, seed: int) -> None:
        self.tokens = 0
        self._responses = self._equal = 0
        self._readings: dict[str, Reading] = {}
        self._moments: PairMoments | None = None
        self._sketches = {name: Quantiles() for name in PER_RESPONSE}
        self._by_position = BinTally(POSITION_EDGES)
        self._by_probability = BinTally(PROBABILITY_EDGES)
        self._worst, self._prompts = WorstResponses(), PromptGaps()
        self._unmeasured = Unmeasured()
        self._scatter, self._bootstrap = Scatter(seed), Bootstrap(seed)
        self._effects, self._experts = EffectTally(), ExpertTally()
        self._surprise = {"sampled": _Surprise(), "scored": _Surprise()}

    def add(self, pair: ShardPair) -> None:
        """Add a pair of shards."""
        self.tokens += len(pair.finite_N)
        self._responses += len(pair.sampled.prompt_B)
        self._equal += int((pair.sampled.logprobs_N == pair.scored.logprobs_N).sum())
        self._readings = merge_all(self._readings, pair_readings(pair.tokens, pair.sequence_ids))
        self._experts.add(pair.sampled, pair.scored)
        self._unmeasured.add(pair)
        self._surprise["sampled"].add(pair.sampled)
        self._surprise["scored"].add(pair.scored)
        if len(pair.rows):
            self._add_gaps(pair)

    def _add_gaps(self, pair: ShardPair) -> None:
        moments = PairMoments.of(pair.tokens)
        self._moments = moments if self._moments is None else self._moments.merge(moments)
        for name, figures in pair.figures.items():
            self._sketches[name] = self._sketches[name].merge(Quantiles.of(figures))
        self._by_position.add(pair.tokens.position_N, pair)
        self._by_probability.add(pair.tokens.sampler_N, pair)
        tallies = (self._worst, self._prompts, self._scatter, self._bootstrap, self._effects)
        for tally in tallies:
            tally.add(pair)

    def comparison(self, prompts: Sequence[str] | None) -> Comparison:
        """The comparison over all shards."""
        readings = dict(self._readings)
        if self._moments is not None:
            readings |= self._moments.readings()
        learner = self._surprise["scored"]
        if learner.has_entropy and learner.mean.count:
            mean = learner.mean
            readings[_NLL_GAP] = Mean(-mean.total, mean.count, mean.nonfinite)
        experts = self._experts.finish()
        # The test concerns the sampler's reported values; without its entropy, use the learner's.
        claim = self._surprise["sampled"]
        return Comparison(
            prompts=self._prompts.prompts,
            responses=self._responses,
            tokens=self.tokens,
            readings={**readings, **experts.readings},
            intervals=self._intervals(readings),
            by_position=self._by_position.bins(),
            by_probability=self._by_probability.bins(),
            worst_prompts=self._prompts.found(),
            worst=self._worst.found(prompts),
            scatter=self._scatter.found(),
            effects=self._effects.shares(),
            experts=experts.comparison,
            entropy_z=(claim if claim.has_entropy else learner).z,
            quantiles=_quantiles(self._sketches),
            unmeasured=self._unmeasured.found,
            equal_tokens=self._equal,
        )

    def _intervals(self, readings: Mapping[str, Reading]) -> dict[str, Interval]:
        if self._prompts.prompts < FEWEST_PROMPTS:
            return {}
        found = {}
        for figure, (low, high) in self._bootstrap.intervals(self._prompts.prompts).items():
            reading = readings.get(f"mismatch/{figure}")
            value = None if reading is None else scalar(reading)
            # A bootstrap cannot draw an event that never occurred: "0 to 0" would claim too much.
            unseen = isinstance(reading, Rate) and not reading.hits
            if value is not None and not unseen:
                found[f"mismatch/{figure}"] = Interval(value, low, high)
        return found


def _quantiles(sketches: Mapping[str, Quantiles]) -> dict[str, dict[str, float]]:
    return {
        f"mismatch/{name}": {f"{share:g}": sketch.quantile(share) for share in _QUANTILES}
        for name, sketch in sketches.items()
        if sketch.count
    }


class _Surprise:
    """log p + entropy of the sampled tokens in one engine that reports both.

    If the tokens come from the distribution of the log-probabilities and the entropy, each term has
    mean zero given the preceding tokens. The sum is then a martingale; divided by the root of its
    sum of squares it is standard normal, even if responses are alike.
    """

    def __init__(self) -> None:
        self.has_entropy = True
        self.mean = Mean.of(np.empty(0))
        self._squares = 0.0

    def add(self, shard: Shard) -> None:
        """Add a shard; a shard without entropy makes the test unavailable."""
        if shard.entropy_N is None:
            self.has_entropy = False
            return
        terms_N: NDArray[np.float64] = shard.logprobs_N.astype(np.float64) + shard.entropy_N
        self.mean = self.mean.merge(Mean.of(terms_N))
        terms_N = terms_N[np.isfinite(terms_N)]
        self._squares += float(np.dot(terms_N, terms_N))

    @property
    def z(self) -> float | None:
        """The sum over its standard error; None without entropy, 0 if all tokens were certain."""
        if not self.has_entropy or not self.mean.count:
            return None
        return float(self.mean.total) / math.sqrt(self._squares) if self._squares else 0.0
