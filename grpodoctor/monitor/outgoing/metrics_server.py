"""The HTTP endpoint of `grpodoctor watch --metrics-port`."""

from __future__ import annotations

import errno
from typing import Any, Self, cast

from grpodoctor.errors import ConfigError, MissingExtraError
from grpodoctor.monitor.snapshot import Snapshot
from grpodoctor.support.safe_text import printable

LOOPBACK = "127.0.0.1"
_REASONS = {
    errno.EADDRINUSE: ("the port is in use", "choose another port, or 0 for any free one"),
    errno.EACCES: ("ports below 1024 need special rights", "choose a port from 1024 on"),
    errno.EADDRNOTAVAIL: ("this machine has no such address", "choose one of its addresses"),
}


class MetricsServer:
    """Serves the published state of a run to Prometheus, from its own thread.

    A client that asks for OpenMetrics gets it, any other the older Prometheus text format.

    Args:
        port: TCP port; 0 for any free one.
        host: address to listen on.

    Raises:
        ConfigError: if the address cannot be used.
        MissingExtraError: if `prometheus_client` is not installed.
    """

    def __init__(self, port: int, host: str = LOOPBACK) -> None:
        try:
            from prometheus_client import CollectorRegistry, start_http_server
        except ImportError:
            raise MissingExtraError("--metrics-port", "metrics") from None
        from grpodoctor.monitor.outgoing.run_metrics import RunMetrics

        registry = CollectorRegistry(auto_describe=False)
        self._metrics = RunMetrics()
        registry.register(cast("Any", self._metrics))
        try:
            self._server, self._thread = start_http_server(port, host, registry)
        except OSError as error:
            raise _refusal(error, host, port) from None
        shown = f"[{host}]" if ":" in host else host
        self.url = f"http://{shown}:{self._server.server_port}/metrics"
        """Address to scrape."""

    def publish(self, snapshot: Snapshot) -> None:
        """Replace the state that scrapes see."""
        self._metrics.publish(snapshot)

    def close(self) -> None:
        """Stop listening."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _refusal(error: OSError, host: str, port: int) -> ConfigError:
    default = (str(error.strerror or error), "check --metrics-host and --metrics-port")
    reason, remedy = _REASONS.get(error.errno or 0, default)
    where = f"{printable(host)}:{port}"
    return ConfigError(f"cannot serve metrics: {reason}", where=where, remedy=remedy)
