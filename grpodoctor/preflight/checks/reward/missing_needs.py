"""REW108."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

from grpodoctor.preflight.answers.completions.needed_programs import (
    defined_names,
    missing_modules,
    missing_programs,
)
from grpodoctor.preflight.answers.reference_answers import REQUIRES_REWARD
from grpodoctor.preflight.base import Check
from grpodoctor.preflight.context import PreflightContext
from grpodoctor.preflight.results.check_results import CheckFinding, CheckResult

_FUNCTION_KEYS = ("custom_reward_function", "reward.custom_reward_function")
"""verl's settings for a reward function: `path` and `name` below them."""


class MissingNeeds(Check):
    """The reward function needs something that does not exist.

    What it sees:
        The source of the reward function: programs that it starts (`subprocess.run(["node", …])`)
        and that are not installed, and modules that it imports where it catches every exception.
        If verl's config names a function of the same file, whether the file defines it.

    Why it matters:
        A caught exception turns into the reward of a wrong answer: every response earns the same,
        and no log says why.

    What to do:
        Install the program or the module where the rewards are computed, and do not catch the
        exception of a missing one.

    When it is wrong:
        Rewards are computed on another machine, which has the program.

    References:
        verl, verl/trainer/ppo/reward.py, load_reward_manager.
    """

    code: ClassVar[str] = "REW108"
    name: ClassVar[str] = "reward-needs-missing"
    summary: ClassVar[str] = "The reward function needs something that does not exist."

    def examine(self, context: PreflightContext) -> CheckResult:
        """Read the source of the function and the config."""
        if context.reward is None:
            return REQUIRES_REWARD
        spec = context.reward.spec
        return (*_not_installed(spec), *_undefined(context, spec))


def _not_installed(spec: str) -> Iterator[CheckFinding]:
    for kind, names in (
        ("starts the program", missing_programs(spec)),
        ("imports the module", missing_modules(spec)),
    ):
        for name in names:
            yield CheckFinding(
                "warning",
                f"The reward function {kind} {name!r}, which is not installed.",
                ("Install it where rewards are computed; do not catch the exception without it.",),
            )


def _undefined(context: PreflightContext, spec: str) -> Iterator[CheckFinding]:
    """A function that verl's config names, and that its file does not define."""
    path = Path(spec.rpartition(":")[0])
    for key in _FUNCTION_KEYS:
        file, name = (context.flat_config.get(f"{key}.{each}") for each in ("path", "name"))
        if not isinstance(file, str) or Path(file).name != path.name:
            continue
        wanted = name if isinstance(name, str) and name else "compute_score"
        defined = defined_names(spec)
        if defined and wanted not in defined:
            yield CheckFinding(
                "critical",
                f"The config names the reward function {wanted!r} ({key}), which {path.name} does "
                "not define.",
                (f"Set {key}.name to a function of the file.",),
            )
