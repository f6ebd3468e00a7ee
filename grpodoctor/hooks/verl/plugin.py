"""The entry point of the group `verl.plugins`, which verl imports in every process.

Importing this module registers the observed losses and advantage estimators. verl logs the
exceptions of plugins at level DEBUG only, so a failure is reported here. Outside verl, nothing
happens.
"""

from __future__ import annotations

import logging
import sys

from grpodoctor.hooks.guard import reason_of
from grpodoctor.hooks.verl.observed_advantage import register_estimators
from grpodoctor.hooks.verl.observed_loss import register_losses

_log = logging.getLogger("grpodoctor")

if sys.modules.get("verl") is not None:  # verl is importing this module
    for what, register in (
        ("policy losses", register_losses),
        ("advantage estimators", register_estimators),
    ):
        try:
            register()
        except Exception as error:  # noqa: BLE001 - the boundary to verl
            _log.warning(
                "verl's %s cannot be observed: %s; names that begin with grpodoctor are not "
                "available",
                what,
                reason_of(error),
            )
