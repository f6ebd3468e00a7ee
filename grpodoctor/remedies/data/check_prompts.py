"""Check of the prompts that reach the sampler."""

from __future__ import annotations

from grpodoctor.remedies.base import Criterion, Remedy


class CheckPrompts(Remedy):
    """Look for the reason why the groups of a batch have the same prompt.

    What it does:
        Groups with one prompt compare answers to one question. The reason is nearly always in the
        data: a placeholder of the template that is not filled in, a constant column, a filter that
        left a few rows, or a sampler that returns the same rows for each batch or rank.

    When it applies:
        Most groups of a batch repeat the prompt of another group, and that is not intended.

    What it costs:
        An hour of your time. Batches with the intended prompts cost the same as those without.

    What it overlaps:
        Nothing.

    How it is judged:
        By a person, after the restart: each group of a batch has a prompt of its own.

    References:
        Wang et al. 2025, arXiv 2504.20571, for single prompts that are repeated on purpose.
    """

    id = "check-prompts"
    title = "Find out why groups of a batch have the same prompt"
    applicability = "suggest"
    in_flight = False
    slots = ()
    target = Criterion("groups/repeated_prompt_rate", "down")
    paper = "arXiv 2504.20571"
    alternatives = ("refilter-prompts",)
    how = (
        "Print five prompts as the sampler receives them, after the template is applied. Count the "
        "rows and the different prompts of the data set after filtering. Then compare the row "
        "numbers that two batches, or two ranks, draw."
    )
    command = "grpodoctor preflight --prompts FILE"
