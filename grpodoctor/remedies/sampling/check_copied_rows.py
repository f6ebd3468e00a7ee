"""Check for copied rows."""

from __future__ import annotations

from grpodoctor.remedies.base import Criterion, Remedy


class CheckCopiedRows(Remedy):
    """Find the place at which responses are copied.

    What it does:
        Independent requests give different responses. Rows that repeat token by token come from
        requests with the same seed, from a cache that answers a repeated prompt, or from an index
        that doubles rows when batches are repeated, sharded or gathered.

    When it applies:
        Far more responses of a group are identical than their probabilities explain.

    What it costs:
        An hour of your time.

    What it overlaps:
        Removing duplicates from the loss hides the copies and keeps half of the groups.

    How it is judged:
        By a person: the responses of one group differ, and the share of duplicates falls to the
        expected one.

    References:
        Broder 1997, On the Resemblance and Containment of Documents.
    """

    id = "check-copied-rows"
    title = "Find where responses are copied"
    applicability = "suggest"
    in_flight = False
    slots = ()
    target = Criterion("groups/duplicate_rate", "down")
    paper = "Broder 1997, On the Resemblance and Containment of Documents"
    how = (
        "Print the tokens of one group as the sampler returns them, and again where the loss reads "
        "them. If the first are copies, remove a fixed seed from the requests and turn off answer "
        "caches. If only the second are, look at the indices that repeat, shard or gather rows."
    )
