"""Check of the end token."""

from __future__ import annotations

from grpodoctor.remedies.base import Criterion, Remedy


class CheckEndToken(Remedy):
    """Check that the policy can end a response.

    What it does:
        If the chat template, the stop tokens of the engine or the loss mask disagree on the end
        token, no response ends by itself: it is either never sampled as a stop, or never trained.

    When it applies:
        All responses have the maximum length from the first step on, or nearly all of them since a
        later one: an end token that is not in the loss is unlearned.

    What it costs:
        An hour of your time. A longer limit only costs more.

    What it overlaps:
        A longer limit, which does not help here.

    How it is judged:
        By a person: at the first step, most responses end before the limit.

    References:
        TRL pull request 7039 (several end tokens); `grpodoctor preflight` (end tokens, loss on the
        end token).
    """

    id = "check-end-token"
    title = "Check the end token"
    applicability = "suggest"
    in_flight = False
    slots = ()
    target = Criterion("length/truncated_rate", "down")
    paper = "TRL pull request 7039"
    how = (
        "`grpodoctor preflight` compares the end tokens of template, tokenizer and generation "
        "config, and checks that the end token is in the loss. Check for ignore_eos, for a prompt "
        "without the chat template, and for a limit below the usual length."
    )
    command = "grpodoctor preflight --model DIR"
