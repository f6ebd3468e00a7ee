"""The plugin for Axolotl, loaded and called as its commit 002a637c does."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import grpodoctor
from grpodoctor.hooks.adapter import adapter_named

pytestmark = pytest.mark.filterwarnings("ignore")
NAME = "grpodoctor.hooks.trl.axolotl_plugin.GrpodoctorPlugin"


class BasePlugin:
    """Stands for `axolotl.integrations.base.BasePlugin`."""

    def register(self, cfg: Any) -> None:
        """One of many methods that Axolotl calls on each plugin."""

    def post_trainer_create(self, cfg: Any, trainer: Any) -> None:
        """Another one."""


def loaded(monkeypatch: pytest.MonkeyPatch) -> Any:
    """As in `load_plugin`."""
    for name in ("axolotl", "axolotl.integrations", "axolotl.integrations.base"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    monkeypatch.setattr(sys.modules["axolotl.integrations.base"], "BasePlugin", BasePlugin, False)
    module_name, class_name = NAME.rsplit(".", 1)
    monkeypatch.delitem(sys.modules, module_name, False)
    return getattr(importlib.import_module(module_name), class_name)()


def test_axolotls_trainer_is_recorded(
    make_trainer: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    from trl import GRPOTrainer

    class AxolotlGRPOTrainer(GRPOTrainer):
        """Axolotl's own adds mixins for the data and the optimizer."""

    plugin = loaded(monkeypatch)
    plugin.register({})
    trainer = make_trainer(kind=AxolotlGRPOTrainer, max_steps=2)
    plugin.post_trainer_create({}, trainer)
    trainer.train()
    run = grpodoctor.open_run(Path(trainer.args.output_dir) / "grpodoctor")
    assert [record.step for record in run] == [1, 2]
    assert all("entropy/p10" in record.values for record in run)  # of single tokens
    assert NAME in adapter_named("axolotl").instructions


def test_another_trainer_is_left_alone(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    loaded(monkeypatch).post_trainer_create({}, object())
    (line,) = [each.getMessage() for each in caplog.records if each.name == "grpodoctor"]
    assert line.startswith("cannot attach to object")
