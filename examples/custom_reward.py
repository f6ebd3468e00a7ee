"""A custom reward: 1 for the right answer, plus a small bonus for the requested format.

`grpodoctor train`, `grpodoctor preflight`, TRL and verl call reward functions differently. This one
has the parameters that grpodoctor documents; functions written for TRL or verl work unchanged.
"""


def score(prompts: list[str], completions: list[str], answers: list[str]) -> dict[str, list[float]]:
    """Reward each completion.

    Returns:
        One list per component. Components are added up; each is recorded separately, so that
        grpodoctor reports a component that is constant or that outweighs the others.
    """
    correct, style = [], []
    for completion, answer in zip(completions, answers, strict=True):
        _, marker, final = completion.rpartition("#")
        correct.append(float(final.strip() == answer))
        style.append(0.1 if marker else 0.0)
    return {"correct": correct, "format": style}
