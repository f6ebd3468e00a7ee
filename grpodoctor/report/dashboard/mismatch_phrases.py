"""Why a run shows no mismatch by sequence, and what would show it."""

from __future__ import annotations

from grpodoctor.frameworks.logging_advice import how_to_dump_logprobs

_HOOK = "Record the next run with a hook: `grpodoctor attach` prints the lines to add."


def why_no_sequences(
    framework: str, *, is_gone: bool, is_recorded: bool, has_responses: bool
) -> str:
    """Why the page has no values of single sequences.

    Args:
        framework: the run's framework, as in its manifest.
        is_gone: whether the files of the run have vanished.
        is_recorded: whether a recorder of grpodoctor wrote the run.
        has_responses: whether responses were read.

    Returns:
        Markdown of our own text.
    """
    if is_gone:
        return "The files with the responses have vanished, and with them the values by sequence."
    if is_recorded:
        return _why_not_recorded(framework, has_responses=has_responses)
    why = (
        "The dumped responses lack the log-probabilities of the sampler or of the learner."
        if has_responses
        else "No dumped responses were found next to the log."
    )
    how = how_to_dump_logprobs(framework)
    return f"{why} To dump both log-probabilities: {how}." if how else f"{why} {_HOOK}"


def _why_not_recorded(framework: str, *, has_responses: bool) -> str:
    if not has_responses:
        setting = (
            "`record.depth=summary`"
            if framework == "grpodoctor"
            else '`attach(trainer, depth="summary")`'
        )
        return f"No responses were recorded. Record them with {setting} or a greater depth."
    return (
        "The responses were recorded without the log-probabilities of both engines. Let the "
        "sampler return its log-probabilities; a custom training loop passes them as "
        "`sampler_logprobs` together with `logits`."
    )
