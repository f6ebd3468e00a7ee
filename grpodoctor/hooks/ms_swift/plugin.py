"""The plugin: importing this module adds the callback `grpodoctor` to those of ms-swift.

A file given to `--external_plugins` imports it, and `--callbacks grpodoctor` selects it.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

from transformers import TrainerCallback

from grpodoctor.hooks.guard import reason_of
from grpodoctor.hooks.ms_swift.swift_listener import swift_events
from grpodoctor.hooks.run_hook import RunHook, hook_options

_log = logging.getLogger("grpodoctor")


def swift_callback(args: Any, trainer: Any) -> TrainerCallback:
    """Make the callback; ms-swift calls this while it builds the trainer.

    Args:
        args: the training arguments.
        trainer: the trainer.
    """
    try:
        options = hook_options(None, "none", "off", 0)
        hook = RunHook("ms-swift", options, Path(args.output_dir) / "grpodoctor")
        return swift_events(hook, trainer)
    except Exception as error:  # noqa: BLE001 - the boundary to the training
        _log.warning("grpodoctor does not record this training: %s", reason_of(error))
        return TrainerCallback()


def _register() -> None:
    from swift.callbacks import callbacks_map

    callbacks_map["grpodoctor"] = swift_callback


try:
    _register()
except Exception as error:  # noqa: BLE001 - as above
    _log.warning("ms-swift cannot be observed: %s", reason_of(error))
