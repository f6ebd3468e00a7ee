"""All targets."""

from __future__ import annotations

from tests.fuzz.targets import (
    log_formats,
    probes_and_data,
    recorded_runs,
    rollout_dumps,
    settings_files,
    whole_reports,
)
from tests.fuzz.targets.base import Target


def all_targets() -> list[Target]:
    """Every reader, in the order of the table."""
    modules = (log_formats, rollout_dumps, recorded_runs, settings_files, probes_and_data,
               whole_reports)  # fmt: skip
    return [target for module in modules for target in module.targets()]
