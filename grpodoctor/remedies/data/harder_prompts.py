"""Harder prompts."""

from __future__ import annotations

from grpodoctor.remedies.base import Criterion, Remedy


class HarderPrompts(Remedy):
    """Replace prompts that are always solved by harder ones.

    What it does:
        A prompt that every response solves has no reward variance and contributes no gradient. A
        harder one that is solved some of the time does.

    When it applies:
        Many groups are all-correct.

    What it costs:
        New data. Training accuracy can no longer be compared with the earlier curve.

    What it overlaps:
        Dynamic sampling, which skips the easy prompts but still pays for sampling them.

    How it is judged:
        By a person, after the restart: fewer groups are all-correct, and held-out accuracy rises.

    References:
        Polaris 2025, A Post-training Recipe for Scaling RL on Advanced Reasoning Models (dropping
        easy prompts); DAPO, arXiv 2503.14476, section 3.2.
    """

    id = "harder-prompts"
    title = "Train on harder prompts"
    applicability = "suggest"
    in_flight = False
    slots = ()
    target = Criterion("groups/all_correct_rate", "down")
    paper = "Polaris 2025"
    alternatives = ("refilter-prompts",)
    how = (
        "Sample eight responses per prompt with the current policy, drop the prompts that are "
        "solved every time, and add harder ones until most are solved between a quarter and three "
        "quarters of the time."
    )
    command = (
        "grpodoctor preflight --model DIR --prompts FILE "
        "--reward FILE.py:FUNCTION --sampler vllm:MODEL --write-filtered KEPT.jsonl"
    )
