"""A connection to a Ray cluster, with errors that name the remedy."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from grpodoctor.errors import ConfigError, MissingExtraError

_CONNECT_SECONDS = 5.0


@contextmanager
def connected(address: str, purpose: str) -> Iterator[Any]:
    """The module `ray`, connected; a cluster or connection that this opens is closed at the end.

    Args:
        address: `local` starts a cluster, `auto` or an address joins one.
        purpose: what the cluster is for, for an error message.

    Raises:
        ConfigError: if there is no cluster at the address.
        MissingExtraError: if Ray is not installed.
    """
    try:
        import ray
    except ImportError:
        raise MissingExtraError(purpose, "ray") from None
    started = _join(ray, address)
    try:
        yield ray
    finally:
        if started:
            ray.shutdown()


def _join(ray: Any, address: str) -> bool:
    """Connect to the cluster unless this process already is; return whether it did."""
    if ray.is_initialized():
        return False
    _check_address(address)
    package = Path(__file__).parents[1]
    quiet: dict[str, Any] = {"include_dashboard": False} if address == "local" else {}
    try:
        ray.init(
            address=address,
            log_to_driver=False,
            logging_level="ERROR",
            configure_logging=False,
            # The nodes may have another version of this package, or none.
            runtime_env={"py_modules": [str(package)]},
            **quiet,
        )
    except (ConnectionError, ValueError, RuntimeError, OSError) as error:
        raise _no_cluster_error(address, str(error)) from error
    return True


def _check_address(address: str) -> None:
    """Check that the host accepts connections; Ray itself would wait for minutes.

    Raises:
        ConfigError: if there is no connection to the host and port.
    """
    host, colon, port = address.removeprefix("ray://").rpartition(":")
    if not colon:
        return
    import socket

    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=_CONNECT_SECONDS).close()
    except (OSError, ValueError, OverflowError) as error:
        raise _no_cluster_error(address, str(error)) from error


def _no_cluster_error(address: str, reason: str) -> ConfigError:
    return ConfigError(
        f"no Ray cluster: {(reason.splitlines() or [''])[0][:120]}",
        where=f"--ray {address[:80]}",
        remedy="pass local, auto or the address of a running cluster",
    )
