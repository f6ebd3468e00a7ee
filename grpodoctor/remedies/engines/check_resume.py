"""Check of a resumed run."""

from __future__ import annotations

from grpodoctor.remedies.base import Criterion, Remedy


class CheckResume(Remedy):
    """Check what a resume restored.

    What it does:
        A resume must restore weights, optimizer state, learning-rate schedule, data position and
        the sampler's weights. If one is missing, the run continues with a jump: the mismatch rises
        because the sampler kept old weights, the KL restarts because the reference was replaced, or
        prompts repeat.

    When it applies:
        A metric jumps at a resume, or two branches of a run overlap.

    What it costs:
        An hour of your time. Steps after a bad resume are lost.

    What it overlaps:
        Nothing.

    How it is judged:
        By a person: the first step after a resume continues the curves of reward, KL, gradient norm
        and mismatch.

    References:
        OPT, arXiv 2205.01068, section 2.5 (restarts during a run).
    """

    id = "check-resume"
    title = "Check what the resume restored"
    applicability = "suggest"
    in_flight = False
    slots = ()
    target = Criterion("mismatch/logprob_diff_mean", "toward-baseline")
    more_targets = (Criterion("kl/reference/k3", "toward-baseline"),)
    paper = "OPT, arXiv 2205.01068"
    how = (
        "Compare the last step before the resume with the first one after it. Check that the "
        "sampler loaded the checkpoint, that the reference is still the starting model, that "
        "adapters are not merged twice, and that the optimizer state and the position in the data"
        " were restored. Log the branches as separate runs."
    )
