"""Prompts of suitable difficulty."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from grpodoctor.remedies.base import Criterion, Remedy
from grpodoctor.vocabulary.knobs import Setting


class RefilterPrompts(Remedy):
    """Keep the prompts that are solved 20 to 80 % of the time, and filter again later.

    What it does:
        The signal of a group is the spread of its rewards: p (1 - p) for a pass rate p. It is
        largest at one half and less than two thirds of that below 20 % or above 80 %. As the policy
        improves, prompts leave this range, so the filter must be repeated.

    When it applies:
        Many groups are all-correct or all-incorrect, and the dataset has prompts of mixed
        difficulty.

    What it costs:
        A few samples of every prompt at each filtering. Hard prompts that would be solved later are
        postponed: keep them for the next round.

    What it overlaps:
        Dynamic sampling, which filters after sampling and pays for it.

    How it is judged:
        By a person, after the restart: more groups have variance, and held-out accuracy rises.

    References:
        Polaris 2025; Reinforce-Rej, arXiv 2504.11343; `grpodoctor preflight --write-filtered`.
    """

    id = "refilter-prompts"
    title = "Keep prompts with a pass rate of 20 to 80 %"
    applicability = "suggest"
    in_flight = False
    slots = ("zero-signal",)
    target = Criterion("groups/effective_rate", "up")
    more_targets = (Criterion("groups/zero_variance_rate", "down"),)
    paper = "Polaris 2025"
    alternatives = ("reinforce-rej", "maxrl")
    how = (
        "Sample eight responses per prompt with the current policy (`grpodoctor preflight "
        "--write-filtered FILE`), and keep the prompts that are solved between 20 and 80 % of the"
        " time. Repeat it whenever the share of groups with variance falls below one half."
    )
    command = (
        "grpodoctor preflight --model DIR --prompts FILE "
        "--reward FILE.py:FUNCTION --sampler vllm:MODEL --write-filtered KEPT.jsonl"
    )
    restart_with: ClassVar[Mapping[str, Setting]] = {"pass_rate_filter": True}
