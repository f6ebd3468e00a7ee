"""Finds the place of the model at which the engines of an unexplained gap differ."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from grpodoctor.errors import EngineError
from grpodoctor.probe.attribution.edits import as_json
from grpodoctor.probe.attribution.experiments import Experiments
from grpodoctor.probe.attribution.localisation.place_fit import HEAD, Measured, PlaceFit, PlaceFits
from grpodoctor.probe.attribution.localisation.place_names import contains, in_words
from grpodoctor.probe.attribution.tokens import Tokens
from grpodoctor.probe.attribution.variant import Variant
from grpodoctor.probe.engines.jobs import BudgetSpentError, SensitivityJob
from grpodoctor.probe.engines.sensitivities import read_sensitivities

MEASURED_TOKENS = 1280
"""Tokens whose gradients are taken."""
_MOST_TOKENS = 4096
"""Tokens of the responses that contain them, prompts included."""
_RESPONSES = 40
"""The number of these responses; fewer if they are long."""
_FEWEST_PROMPTS = 8
_FEWEST_TOKENS = 200
_LEAST = 10.0
"""Log-likelihood above noise alone, in nats, from which a place is named."""
_MARGIN = 10.0
"""The same above the next best place."""
_RIVALS = 3
"""Next best places that must fit worse in each half of the prompts."""
_SCREENED, _FINALISTS = 512, 6
"""Tokens on which all places are compared, and the best of them, which are on all tokens."""
_SPLITS = 2
"""Random divisions of the prompts into halves."""
_SPECIFIC = 3.0
"""A part of a place is preferred to the whole unless this much less likely."""
_SAME = 0.05
"""Largest difference of the measured log-probabilities from the learner's, relative to that of the
engines."""


@dataclass(frozen=True, slots=True)
class Location:
    """Where the engines of a gap differ, as far as the differences show it."""

    place: str = ""
    """The place that fits clearly best, such as `3.self_attn`; empty if none does."""
    words: str = ""
    """The same in words: `layer 3 self_attn`."""
    rival: str = ""
    """The next best place, in words."""
    margin: float = 0.0
    """Log-likelihood of the place above that of the next best one, in nats."""
    held_out: float = 0.0
    """Share of the differences that the place predicts in prompts to which nothing was fitted."""
    rival_held_out: float = 0.0
    at_logits: bool = False
    """Whether the output head fits best. No place is stated then: temperatures, truncations and
    penalties change the logits as well."""
    own_share: float = 0.0
    """Share of the differences that the tokens' own probabilities explain."""
    fits: tuple[PlaceFit, ...] = ()
    """The places compared on all tokens, the likeliest first; empty if none was examined."""
    reason: str = ""
    """Why the places were not examined."""


def located_once(experiments: Experiments, variant: Variant) -> Location:
    """The place of a gap; each setup is examined once.

    A search asks for the places first, and the final report again.
    """
    key = repr(variant.setup), int(variant.tokens.counted_N.sum())
    if key not in experiments.locations:
        experiments.locations[key] = located(experiments, variant)
    found: Location = experiments.locations[key]
    return found


def located(experiments: Experiments, variant: Variant) -> Location:
    """The place that explains a gap, if one explains it clearly better than all others."""
    learner = variant.setup.learner
    if not learner.kind.can_alter:
        return Location(reason=f"{learner.label} cannot be examined: it allows no gradients")
    rows = _responses(variant.tokens)
    if not rows:
        return Location(reason="there are too few prompts")
    try:
        folder = experiments.folder_of(variant, set(rows))
        arrays = _sensitivities(experiments, variant, folder)
    except BudgetSpentError:
        return Location(reason="the time budget ended")
    except EngineError as error:
        return Location(reason=error.what)
    measured = _measured(variant.tokens, rows, arrays)
    if measured is None:
        return Location(reason="the learner's setup has no gradients of the same values")
    return judged(measured)


def judged(measured: Measured) -> Location:
    """The place that fits clearly best; only the fits if none does."""
    every = PlaceFits(measured)
    fits = sorted(map(every.of, _finalists(measured)), key=lambda fit: -fit.evidence)
    best = next(fit for fit in fits if fit.evidence >= fits[0].evidence - _SPECIFIC)
    for fit in fits:  # the smallest part that fits as well
        if contains(best.name, fit.name) and fit.evidence >= fits[0].evidence - _SPECIFIC:
            best = fit
    others = [fit for fit in fits if not _related(best.name, fit.name)]
    rival = others[0] if others else PlaceFit("", 0.0, (0.0, 0.0))
    margin = best.evidence - rival.evidence
    location = Location(own_share=every.own_share, fits=tuple(fits), margin=margin)
    if best.evidence < _LEAST or margin < _MARGIN or best.name == "everywhere":
        return location
    if not _holds_in_halves(measured, best.name, [fit.name for fit in others[:_RIVALS]]):
        return location
    if best.name == HEAD:
        return replace(location, at_logits=True)
    first, second = every.with_held_out(best), every.with_held_out(rival)
    return Location(
        place=best.name,
        words=in_words(best.name),
        rival=in_words(rival.name),
        margin=margin,
        held_out=first.held_out,
        rival_held_out=second.held_out,
        own_share=every.own_share,
        fits=tuple(fits),
    )


def _finalists(measured: Measured) -> list[str]:
    """The places that are compared on all tokens: the best ones on a part of them.

    Time goes with the third power of the number of tokens.
    """
    coarse = [fit.name for fit in PlaceFits(measured.sample(_SCREENED)).all()]
    chosen = coarse[:_FINALISTS]
    apart = [name for name in coarse if not _related(coarse[0], name)]
    return list(dict.fromkeys((*chosen, *apart[:_RIVALS])))


def _holds_in_halves(measured: Measured, best: str, rivals: Sequence[str]) -> bool:
    """Whether a place fits better than its rivals in each half of the prompts.

    A few tokens of a mixture of experts that get other experts may move much more than all others.
    What they seem to show differs between the halves.
    """
    for seed in range(_SPLITS):
        for part in measured.halves(seed):
            fits = PlaceFits(part)
            own = fits.of(best).evidence
            if any(fits.of(rival).evidence >= own for rival in rivals):
                return False
    return True


def _related(one: str, other: str) -> bool:
    return one == other or contains(one, other) or contains(other, one)


def _responses(tokens: Tokens) -> list[int]:
    """Responses at equal distances, of bounded length together; empty if too few prompts remain."""
    counted_B = np.unique(tokens.rows_N[tokens.finite_N])
    if not counted_B.size:
        return []
    lengths_B = tokens.lengths_B[counted_B] + tokens.prompt_lengths_B[counted_B]
    step = max(1, -(-int(lengths_B.sum()) // _MOST_TOKENS), -(-counted_B.size // _RESPONSES))
    chosen = counted_B[::step]
    if len(np.unique(tokens.prompt_B[chosen])) < _FEWEST_PROMPTS:
        _, first = np.unique(tokens.prompt_B[counted_B], return_index=True)
        chosen = counted_B[np.sort(first)][:_FEWEST_PROMPTS]
    few = len(np.unique(tokens.prompt_B[chosen])) < _FEWEST_PROMPTS
    return [] if few else [int(row) for row in chosen]


def _sensitivities(
    experiments: Experiments, variant: Variant, folder: Path
) -> dict[str, NDArray[Any]]:
    """What the learner measures, with the edits of the causes so far."""
    job = SensitivityJob(
        rollouts=folder,
        tokens=MEASURED_TOKENS,
        processing=variant.setup.processing,
        what_if=as_json(variant.setup.edits),
    )
    (done,) = experiments.runner.run(variant.setup.learner, [job])
    return read_sensitivities(done)


def _measured(
    tokens: Tokens, rows: Sequence[int], arrays: Mapping[str, NDArray[Any]]
) -> Measured | None:
    """The differences with the measurements; None if these are of other values or of few tokens."""
    of_folder = np.flatnonzero(np.isin(tokens.rows_N, rows))
    token_N = arrays["token_N"]
    if token_N.size < _FEWEST_TOKENS or token_N.max(initial=0) >= of_folder.size:
        return None
    at_N = of_folder[token_N]
    difference_N = np.where(tokens.counted_N[at_N], -tokens.difference_N[at_N], np.nan)
    apart_N = np.abs(arrays["logprob_N"] - tokens.learner_N[at_N])
    finite = np.isfinite(difference_N)
    typical = np.median(np.abs(difference_N[finite])) if finite.any() else 0.0
    if finite.sum() < _FEWEST_TOKENS or not np.nanmedian(apart_N[finite]) <= _SAME * typical:
        return None
    prompt_N = tokens.prompt_B[tokens.rows_N[at_N]]
    return Measured.of(arrays, difference_N, prompt_N)
