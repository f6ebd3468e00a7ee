"""Python objects over a socket, between a recorder and its writer process.

Objects are pickled. Both ends are this package under the same interpreter. The socket has no name,
so no other process can write to it, and text from models or logs is only ever a string inside. A
frame consists of the number of parts, their lengths, and the parts: the pickle, then the large
arrays, which are sent without a copy.
"""

from __future__ import annotations

import pickle
import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from grpodoctor.support.files.descriptors import OwnDescriptor

_LARGE = 1 << 16
"""Arrays of at least so many bytes are sent after the pickle, without a copy."""
_COUNT = struct.Struct("!I")
_NO_SIGNAL = getattr(socket, "MSG_NOSIGNAL", 0)
"""A lost peer must not kill a trainer that restored the default action of SIGPIPE."""


class Wire:
    """One end of the connection. `send` and `receive` are for one thread at a time, `shut` for any.

    Args:
        end: a connected stream socket, owned by this object.
    """

    def __init__(self, end: socket.socket) -> None:
        self._end, self._own = end, OwnDescriptor(end.fileno())

    def send(self, message: object) -> None:
        """Send an object; its arrays must not change meanwhile.

        Raises:
            OSError: if the other end is gone, or other code closed this one.
            pickle.PicklingError, TypeError, AttributeError: if it cannot be pickled; nothing is
                sent then.
        """
        large: list[memoryview] = []

        def keep_in_pickle(buffer: pickle.PickleBuffer) -> bool:
            raw = buffer.raw()
            if raw.nbytes >= _LARGE:
                large.append(raw)
                return False
            return True

        pickled = pickle.dumps(message, protocol=5, buffer_callback=keep_in_pickle)
        parts = [memoryview(pickled), *large]
        lengths = struct.pack(f"!{len(parts)}Q", *(part.nbytes for part in parts))
        with self._explain_closure():
            self._end.sendall(_COUNT.pack(len(parts)) + lengths, _NO_SIGNAL)
            for part in parts:
                self._end.sendall(part, _NO_SIGNAL)

    def receive(self) -> object:
        """Receive the next object.

        Raises:
            EOFError: if the other end is gone, even within an object.
            OSError: if other code closed this one.
        """
        with self._explain_closure():
            (count,) = _COUNT.unpack(self._read(_COUNT.size))
            layout = struct.Struct(f"!{count}Q")
            pickled, *large = [self._read(size) for size in layout.unpack(self._read(layout.size))]
        return pickle.loads(pickled, buffers=large)  # noqa: S301 - both ends are this package

    @contextmanager
    def _explain_closure(self) -> Iterator[None]:
        """Use the connection only if it is open; name the reason if other code closes it."""
        self._own.check()
        try:
            yield
        except OSError:
            self._own.check()
            raise

    def _read(self, size: int) -> bytearray:
        data = bytearray(size)
        rest = memoryview(data)
        while rest:
            try:
                received = self._end.recv_into(rest)
            except ConnectionError:
                received = 0
            if not received:
                raise EOFError("the other end is gone")
            rest = rest[received:]
        return data

    def shut(self) -> None:
        """Shut the connection down for both ends; it interrupts a thread that sends or receives."""
        if self._own.is_open():
            with suppress(OSError):  # already shut down
                self._end.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Close this process's end."""
        if self._own.is_open():
            self._end.close()
        else:
            self._end.detach()  # the number is another file's by now
