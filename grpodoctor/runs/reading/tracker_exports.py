"""Files of experiment trackers that are not read, and how to export a run from them."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from grpodoctor.errors import NoLogError

_TABLE = "a CSV file with a column `step` and a column per metric"
_AIM = (
    "in Python, export the run: pandas.concat([m.dataframe(include_name=True) for m in "
    'aim.Run("HASH", read_only=True).metrics()]).pivot_table(index="step", columns="metric.name", '
    'values="value").to_csv("run.csv"); then pass run.csv'
)
"""`Metric.dataframe` has a row per step with `step` and `value`, as Aim's source defines it."""
_SWANLAB = (
    "save the scalar metrics of the run with `swanlab api run metrics` and its option --save "
    f"(SwanLab 0.8 and later), and pass them as {_TABLE}"
)
_SWANLAB_KEYS = frozenset({"create_time", "data", "index"})
"""Keys of SwanLab's files, one for each metric; the name of the metric is that of a folder."""


def tracker_error(path: Path, names: Collection[str]) -> NoLogError | None:
    """The error for a tracker's folder; None if it is none.

    Args:
        path: the folder that the user gave.
        names: the names of its entries.
    """
    if ".aim" in (path.name, *names):
        return NoLogError("an Aim repository is not read", where=str(path), remedy=_AIM)
    is_swanlab = "swanlog" in (path.name, *names)
    if is_swanlab or any(name.endswith(".swanlab") for name in names):
        return _swanlab_error(path)
    return None


def error_of_keys(path: Path, keys: Collection[str]) -> NoLogError | None:
    """The error for the keys of a tracker's own files; None if they are others."""
    return _swanlab_error(path) if set(keys) == _SWANLAB_KEYS else None


def _swanlab_error(path: Path) -> NoLogError:
    return NoLogError("the files of SwanLab are not read", where=str(path), remedy=_SWANLAB)
