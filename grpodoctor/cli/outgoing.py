"""What `watch` sends out of the terminal: metrics for Prometheus, and alerts."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import ExitStack
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from grpodoctor.monitor.alert_settings import AlertSettings
    from grpodoctor.monitor.outgoing.metrics_server import MetricsServer
    from grpodoctor.monitor.session import Session, Tick

    Listener = Callable[[Session, Tick], None]

MetricsPortOption = Annotated[
    int | None,
    typer.Option(
        "--metrics-port",
        min=0,
        max=65535,
        help="Port on which to serve OpenMetrics to Prometheus; 0 for any free one.",
    ),
]
MetricsHostOption = Annotated[
    str, typer.Option("--metrics-host", help="Address on which to serve metrics.")
]


def metrics_listener(port: int, host: str, stack: ExitStack) -> Listener:
    """Serve metrics until the stack closes; returns the function that updates them.

    Raises:
        ConfigError: if the port or the address cannot be used.
        MissingExtraError: if `prometheus_client` is not installed.
    """
    from grpodoctor.monitor.outgoing.metrics_server import MetricsServer

    server = stack.enter_context(MetricsServer(port, host))
    print(f"metrics: {server.url}", file=sys.stderr, flush=True)
    return _publisher(server)


def alerts_listener(settings: AlertSettings, stack: ExitStack) -> Listener:
    """Send alerts until the stack closes; returns the function that finds them."""
    from grpodoctor.hooks.alerts.run_alerts import RunAlerts

    warnings: list[str] = []

    def warn(text: str) -> None:
        warnings.append(text)
        _print_warning(text)

    def repeat_warnings() -> None:
        if sys.stdout.isatty():  # the live screen has overwritten them
            for text in warnings:
                _print_warning(text)

    stack.callback(repeat_warnings)
    alerts = RunAlerts(settings, warn)
    stack.callback(alerts.close)
    return alerts.listen


def _print_warning(text: str) -> None:
    from grpodoctor.support.safe_text import plain

    print(f"warning: {plain(text)}", file=sys.stderr, flush=True)


def _publisher(server: MetricsServer) -> Listener:
    is_first = True

    def publish(session: Session, tick: Tick) -> None:
        nonlocal is_first
        has_news = tick.restarted or tick.steps or tick.events or is_first
        if has_news and not tick.more:
            server.publish(session.snapshot())
            is_first = False

    return publish
