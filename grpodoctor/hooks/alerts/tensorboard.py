"""TensorBoard: a text on the page *Text*."""

from __future__ import annotations

import time
from typing import Any

from grpodoctor.hooks.alerts.channel import Alert, Channel, ChannelError
from grpodoctor.monitor.alert_settings import ChannelSettings
from grpodoctor.support.safe_text import markdown


class TensorboardChannel(Channel):
    """Writes event files into `directory`, next to those of the training."""

    def __init__(self, settings: ChannelSettings) -> None:
        super().__init__(settings)
        self._writer: Any = None

    def send(self, alert: Alert) -> None:
        """Deliver an alert as a text at its step."""
        try:
            if self._writer is None:
                self._writer = _writer(self.options["directory"])
            self._writer.add_event(_event(alert))
            self._writer.flush()
        except ImportError:
            raise ChannelError("the package tensorboard is not installed") from None
        except OSError as error:
            raise ChannelError(f"the event file cannot be written: {error.strerror}") from None

    def close(self) -> None:
        """Close the event file."""
        if self._writer is not None:
            self._writer.close()


def _writer(directory: str) -> Any:
    from tensorboard.summary.writer.event_file_writer import EventFileWriter

    return EventFileWriter(directory, filename_suffix=".grpodoctor")


def _event(alert: Alert) -> Any:
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.compat.proto.summary_pb2 import Summary, SummaryMetadata
    from tensorboard.compat.proto.tensor_pb2 import TensorProto
    from tensorboard.compat.proto.types_pb2 import DT_STRING

    lines = [f"**{markdown(alert.title)}**", *map(markdown, alert.text.splitlines())]
    text = "\n\n".join(lines)
    value = Summary.Value(
        tag=f"grpodoctor/{alert.code}",
        metadata=SummaryMetadata(plugin_data=SummaryMetadata.PluginData(plugin_name="text")),
        tensor=TensorProto(dtype=DT_STRING, string_val=[text.encode()]),
    )
    return Event(wall_time=time.time(), step=alert.step, summary=Summary(value=[value]))
