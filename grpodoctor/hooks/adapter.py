"""The adapters: one per framework, found by their folder.

`hooks/<framework>/framework_adapter.py` defines a subclass of `Adapter`. The module must be cheap
to import: it imports neither torch nor the framework, because all of them are imported to find the
one that a trainer needs. docs/hooks.md describes how an adapter is written.
"""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from functools import lru_cache
from importlib import import_module
from pathlib import Path
from typing import ClassVar

from grpodoctor.errors import ConfigError, RunError
from grpodoctor.frameworks.registry import all_frameworks, find_framework
from grpodoctor.hooks.run_hook import RunHook
from grpodoctor.support.suggestions import check_name

_MODULE = "framework_adapter"


class Adapter(ABC):
    """Connects a hook to the trainers of one framework.

    Args:
        trainer: the trainer, which `recognizes` has accepted.
    """

    framework: ClassVar[str]
    """Name of the framework, as in `grpodoctor.frameworks`."""
    verified_versions: ClassVar[tuple[str, ...]] = ()
    """Versions of the framework against which the adapter was tested."""
    instructions: ClassVar[str]
    """The lines to add to a training script or config, for `grpodoctor attach --framework`."""

    def __init__(self, trainer: object) -> None:
        self.trainer = trainer

    @classmethod
    @abstractmethod
    def recognizes(cls, trainer: object) -> bool:
        """Whether this adapter is for the trainer; looks at its classes and imports nothing."""

    @abstractmethod
    def default_run_dir(self) -> Path:
        """Where to record if the user named no directory."""

    @abstractmethod
    def install(self, hook: RunHook) -> None:
        """Connect the hook to the trainer; called once, before the training.

        Raises:
            InputError: if the trainer cannot be observed; the message says why.
        """


class SettingsAdapter(Adapter):
    """For frameworks that load a hook by their settings, in separate processes.

    It refuses every object of the framework's package, and names the way that works.
    """

    package: ClassVar[str]
    """Name under which the framework is imported."""
    reason: ClassVar[str]
    """Why an object in the script cannot be attached to."""

    @classmethod
    def recognizes(cls, trainer: object) -> bool:
        """Whether the object is of the framework's package, or extends a class of it."""
        return any(name.startswith(f"{cls.package}.") for name in class_names(trainer))

    def default_run_dir(self) -> Path:
        """The directory that a refused object does not use."""
        return Path(self.package) / "grpodoctor"

    def install(self, hook: RunHook) -> None:  # noqa: ARG002 - nothing to install
        """Refuse.

        Raises:
            RunError: always; the message names the way that works.
        """
        remedy = f"connect it by its settings: grpodoctor attach --framework {self.framework}"
        raise RunError(self.reason, remedy=remedy)


def class_names(trainer: object) -> frozenset[str]:
    """The dotted names of an object's classes, such as `trl.trainer.grpo_trainer.GRPOTrainer`."""
    kinds = inspect.getmro(type(trainer))
    return frozenset(f"{kind.__module__}.{kind.__qualname__}" for kind in kinds)


@lru_cache(maxsize=1)
def adapters() -> dict[str, type[Adapter]]:
    """All adapters by framework."""
    folder = Path(__file__).parent
    found = {}
    for path in sorted(folder.glob(f"*/{_MODULE}.py")):
        module = import_module(f"grpodoctor.hooks.{path.parent.name}.{_MODULE}")
        for member in vars(module).values():
            is_own = inspect.isclass(member) and member.__module__ == module.__name__
            if is_own and issubclass(member, Adapter):
                found[member.framework] = member
    return found


def adapter_named(framework: str) -> type[Adapter]:
    """The adapter of a framework.

    Args:
        framework: its name or an alias of it; `ms_swift` and `swift` are ms-swift.

    Raises:
        ConfigError: if there is none.
    """
    known = find_framework(framework, all_frameworks())
    if known is not None and known.name not in adapters():
        raise ConfigError(
            f"{known.title} has no hook",
            remedy="follow its log: grpodoctor watch LOG",
        )
    name = known.name if known is not None else framework
    check_name(name, adapters(), "framework")
    return adapters()[name]


def adapter_for(trainer: object) -> type[Adapter] | None:
    """The adapter that recognizes a trainer; None if there is none."""
    return next((each for each in adapters().values() if each.recognizes(trainer)), None)
