"""Measures, diagnoses and treats the reinforcement learning of language models.

The names below are the public API; docs/api.md describes them. A name is imported when it is first
used, so that `import grpodoctor` loads neither torch nor pyarrow.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from grpodoctor.api import RecordedRun, check, open_run
    from grpodoctor.hooks.attach import Attachment, attach
    from grpodoctor.hooks.router_watch import RouterWatch
    from grpodoctor.hooks.torch_loop.doctor import Doctor
    from grpodoctor.report.run.run_report import RunReport as Report

__version__ = "0.1.0"

_MODULES = {
    "Attachment": "grpodoctor.hooks.attach",
    "Callback": "grpodoctor.hooks.trl.callback",
    "Doctor": "grpodoctor.hooks.torch_loop.doctor",
    "RecordedRun": "grpodoctor.api",
    "Report": "grpodoctor.report.run.run_report",
    "RouterWatch": "grpodoctor.hooks.router_watch",
    "attach": "grpodoctor.hooks.attach",
    "check": "grpodoctor.api",
    "open_run": "grpodoctor.api",
}
"""The module of each public name."""
_NAMES = {"Report": "RunReport"}
"""Names that differ in their module."""

__all__ = [
    "Attachment",
    "Callback",
    "Doctor",
    "RecordedRun",
    "Report",
    "RouterWatch",
    "__version__",
    "attach",
    "check",
    "open_run",
]


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_MODULES[name]), _NAMES.get(name, name))


def __dir__() -> list[str]:
    return sorted(__all__)
