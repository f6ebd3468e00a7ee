"""Logs of courses, in the file format and with the keys of each framework."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tests.frameworks.log_writers import consoles, events, json_lines, roll, trl, verl
from tests.frameworks.log_writers.base import LoggedRun

Writer = Callable[[LoggedRun, Path], Path]

WRITERS: dict[str, tuple[str, Writer]] = {
    "trl": ("trl", trl.trl),
    "ms-swift": ("ms-swift", trl.ms_swift),
    "verl": ("verl", verl.verl),
    "verl, early": ("verl", verl.verl_early),
    "verl V1": ("verl", verl.verl_v1),
    "rllm": ("verl", verl.rllm),
    "openrlhf": ("openrlhf", consoles.openrlhf),
    "slime": ("slime", consoles.slime),
    "miles": ("slime", consoles.miles),
    "nemo-rl": ("nemo-rl", events.nemo_rl),
    "areal": ("areal", consoles.areal),
    "areal, older": ("areal", consoles.areal_older),
    "skyrl": ("skyrl", events.skyrl),
    "roll": ("roll", roll.roll),
    "roll agentic": ("roll", roll.roll_agentic),
    "prime-rl": ("prime-rl", json_lines.prime_rl),
    "open-instruct": ("open-instruct", json_lines.open_instruct),
    "open-instruct events": ("open-instruct", json_lines.open_instruct_events),
    "tinker-cookbook": ("tinker-cookbook", json_lines.tinker_cookbook),
    "plain names": ("generic", json_lines.plain_names),
}
"""For each format: the framework's name and the writer."""

FROM_ZERO = ("slime", "miles", "tinker-cookbook", "roll", "roll agentic")
"""Formats that number the first step 0."""
