"""The entry point of the group `verl.plugins`, which verl imports in every process.

Importing this module registers the observed losses. verl logs the exceptions of plugins at level
DEBUG only, so a failure is reported here.
"""

from __future__ import annotations

import logging

from grpodoctor.hooks.guard import reason_of
from grpodoctor.hooks.verl.observed_loss import register_losses

_log = logging.getLogger("grpodoctor")

try:
    register_losses()
except Exception as error:  # noqa: BLE001 - the boundary to verl
    _log.warning(
        "verl's policy losses cannot be observed: %s; losses named grpodoctor are not available",
        reason_of(error),
    )
