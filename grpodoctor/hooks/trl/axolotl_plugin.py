"""A plugin of Axolotl that attaches to its GRPO trainer, which extends TRL's.

Axolotl imports it by the name in the setting `plugins` and calls its methods. It was written from
Axolotl's source; Axolotl itself was not run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from grpodoctor.hooks.attach import attach

if TYPE_CHECKING:
    _Plugin = object
else:
    try:
        from axolotl.integrations.base import BasePlugin as _Plugin
    except ImportError:  # imported outside Axolotl
        _Plugin = object


class GrpodoctorPlugin(_Plugin):
    """Attaches to the trainer; Axolotl's base class has the other methods of a plugin."""

    def post_trainer_create(self, cfg: Any, trainer: Any) -> None:  # noqa: ARG002 - Axolotl's signature
        """Record the training.

        Args:
            cfg: Axolotl's configuration.
            trainer: the trainer; one that is not for GRPO is left alone, with one warning line.
        """
        attach(trainer)
