"""numpy, loaded at its first use: `check` reads most logs without it, and loading takes 0.1 s."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from importlib import import_module
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

__all__ = ["np", "with_errstate"]

P = ParamSpec("P")
T = TypeVar("T")

if TYPE_CHECKING:
    import numpy as np
else:

    class _Numpy:
        """Stands for the module; a name that was used once is looked up directly."""

        def __getattr__(self, name: str) -> Any:
            member = getattr(import_module("numpy"), name)
            setattr(self, name, member)
            return member

    np = _Numpy()


def with_errstate(**kinds: Any) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """The decorator `np.errstate`, which loads numpy when the function is called."""

    def decorate(function: Callable[P, T]) -> Callable[P, T]:
        @wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> T:
            with np.errstate(**kinds):
                return function(*args, **kwargs)

        return call

    return decorate
