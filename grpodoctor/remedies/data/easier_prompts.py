"""Easier prompts."""

from __future__ import annotations

from grpodoctor.remedies.base import Criterion, Remedy


class EasierPrompts(Remedy):
    """Add prompts that the policy solves some of the time.

    What it does:
        A prompt that no response solves has no reward variance and contributes no gradient, however
        many responses are sampled. Reinforcement requires that the policy succeeds some of the
        time.

    When it applies:
        Many groups are all-incorrect, and the reward function accepts a correct answer.

    What it costs:
        New data, or a supervised warm start on worked solutions.

    What it overlaps:
        Dynamic sampling, which fails if the prompts are never solved.

    How it is judged:
        By a person, after the restart: fewer groups are all-incorrect, and the reward rises.

    References:
        Bengio et al. 2009, Curriculum Learning; DAPO, arXiv 2503.14476, section 3.2.
    """

    id = "easier-prompts"
    title = "Train on easier prompts"
    applicability = "suggest"
    in_flight = False
    slots = ()
    target = Criterion("groups/all_incorrect_rate", "down")
    paper = "Bengio et al. 2009, Curriculum Learning"
    alternatives = ("refilter-prompts", "maxrl")
    how = (
        "First make sure that the reward accepts a correct answer (recheck-reward). Then mix in "
        "easier prompts, give partial credit, or warm-start on worked solutions, until at least a "
        "quarter of the prompts are solved by some response of their group."
    )
    command = (
        "grpodoctor preflight --model DIR --prompts FILE "
        "--reward FILE.py:FUNCTION --sampler vllm:MODEL --write-filtered KEPT.jsonl"
    )
