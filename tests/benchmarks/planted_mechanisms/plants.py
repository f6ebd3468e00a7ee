"""What a mechanism consists of, and helpers that mechanisms are written with."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random

import numpy as np

from tests.benchmarks.planted_mechanisms.run import Run, Sizes
from tests.benchmarks.planted_mechanisms.world import Floats, Responses

Change = Callable[[int], None]
"""What happens before the step of a number."""
Plan = Callable[[Random, Run], Change | None]
"""Changes the start of a run, and returns what changes it later."""
Prepare = Callable[[Random, Sizes], None]

FALL = ("REW002", "REW014")
"""The outcome fell: accepted where the log shows the fall and not its reason."""
FLAT = ("REW001", "REW020")
"""The outcome does not rise: accepted where the log shows no reason."""
HELDOUT = ("REW003", "REW008")
OFF_POLICY = ("MIS001", "MIS003", "SYN001")


@dataclass(frozen=True)
class Mechanism:
    """A way in which a run breaks, or a healthy run that looks odd."""

    name: str
    about: str
    codes: tuple[str, ...]
    """Rules that a practitioner accepts as its name; empty for a healthy run."""
    plan: Plan
    prepare: Prepare | None = None
    needs: tuple[str, ...] = ()
    """Quantities of which a format must log at least one to show the mechanism at all."""


MECHANISMS: dict[str, Mechanism] = {}
HEALTHY: dict[str, Mechanism] = {}


def mechanism(
    name: str,
    codes: tuple[str, ...],
    prepare: Prepare | None = None,
    needs: tuple[str, ...] = (),
) -> Callable[[Plan], Plan]:
    """Register a mechanism; a healthy run if no codes are given."""

    def register(plan: Plan) -> Plan:
        about = (plan.__doc__ or "").strip()
        registered = MECHANISMS if codes else HEALTHY
        registered[name] = Mechanism(name, about, codes, plan, prepare, needs)
        return plan

    return register


def healthy(name: str, prepare: Prepare | None = None) -> Callable[[Plan], Plan]:
    """Register a healthy run that looks odd."""
    return mechanism(name, (), prepare)


def onset(draw: Random, run: Run) -> int:
    """A step in the middle of the run."""
    return round(run.sizes.steps * draw.uniform(0.35, 0.55))


def from_step(first: int, change: Callable[[], None]) -> Change:
    """Change the run once, before the step `first`."""

    def apply(number: int) -> None:
        if number == first:
            change()

    return apply


def accepted(run: Run, responses: Responses) -> Floats:
    """1 for an answer that equals the label."""
    return run.accepted(responses).astype(float)


def compliance(responses: Responses) -> Floats:
    """1 for a response with the format tag before its answer."""
    return (responses.tagged & (responses.answer >= 0)).astype(float)


def relative_length(run: Run, responses: Responses) -> Floats:
    """Decisions as a share of the limit."""
    result: Floats = responses.decisions / run.sizes.most
    return result


def with_parts(_: Random, sizes: Sizes) -> None:
    """Log the parts of the reward."""
    sizes.reward_parts = True


def with_evaluation(_: Random, sizes: Sizes) -> None:
    """Evaluate often, and log the parts of the reward."""
    sizes.every = 5
    sizes.reward_parts = True


def with_mismatch(_: Random, sizes: Sizes) -> None:
    """Log the mismatch of the engines."""
    sizes.logs_mismatch = True


def with_kl(_: Random, sizes: Sizes) -> None:
    """Log the KL to the reference."""
    sizes.logs_kl = True


def with_tools(_: Random, sizes: Sizes) -> None:
    """Let the policy call tools, and log their failures."""
    sizes.logs_tools = True
    sizes.level, sizes.deepest = -1.0, 5


def by_difficulty(run: Run) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Prompts from easy to hard, as a classifier would sort them: roughly."""
    problems = run.problems
    knowledge = run.start.knowledge
    steps = problems.right[problems.classes]
    own = np.arange(steps.shape[1])
    known = np.take_along_axis(
        knowledge[problems.classes[:, None], own[None, :]], steps[:, :, None], axis=2
    )[..., 0]
    inside = own[None, :] < problems.depth[:, None]
    hardness = (
        problems.depth * (1 + problems.slips) - 0.5 * (known * inside).sum(axis=1) / problems.depth
    )
    return np.argsort(hardness + run.random.normal(0, 0.3, problems.count))
