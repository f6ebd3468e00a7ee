"""Python objects over a socket, between a recorder and the process that writes for it.

They travel as pickles. Both ends are this package, run by one interpreter; the socket has no name,
so that nobody else can put a byte on it, and text from models or logs is never anything but a
string inside. A frame is the number of its parts, their lengths, and the parts: the pickle, then
the large arrays, which are sent from where they lie.
"""

from __future__ import annotations

import pickle
import socket
import struct

_APART = 1 << 16
"""Bytes from which on an array is sent apart from the pickle, uncopied."""
_COUNT = struct.Struct("!I")
_NO_SIGNAL = getattr(socket, "MSG_NOSIGNAL", 0)
"""A trainer may have given SIGPIPE its deadly meaning back; a lost peer must not kill it."""


class Wire:
    """One end. `receive` and `send` may be used by one thread at a time, `shut` by any.

    Args:
        end: a connected stream socket, which this object owns.
    """

    def __init__(self, end: socket.socket) -> None:
        self._end = end

    def send(self, message: object) -> None:
        """Send an object whose arrays nobody changes meanwhile.

        Raises:
            OSError: if the other end is gone.
            pickle.PicklingError, TypeError, AttributeError: if it cannot be pickled; nothing was
                sent then.
        """
        apart: list[memoryview] = []

        def stays_inside(buffer: pickle.PickleBuffer) -> bool:
            raw = buffer.raw()
            if raw.nbytes >= _APART:
                apart.append(raw)
                return False
            return True

        pickled = pickle.dumps(message, protocol=5, buffer_callback=stays_inside)
        parts = [memoryview(pickled), *apart]
        lengths = struct.pack(f"!{len(parts)}Q", *(part.nbytes for part in parts))
        self._end.sendall(_COUNT.pack(len(parts)) + lengths, _NO_SIGNAL)
        for part in parts:
            self._end.sendall(part, _NO_SIGNAL)

    def receive(self) -> object:
        """The next object.

        Raises:
            EOFError: if the other end is gone, also in the midst of one.
        """
        (count,) = _COUNT.unpack(self._read(_COUNT.size))
        layout = struct.Struct(f"!{count}Q")
        pickled, *apart = [self._read(size) for size in layout.unpack(self._read(layout.size))]
        return pickle.loads(pickled, buffers=apart)  # noqa: S301 - see above: both ends are ours

    def _read(self, size: int) -> bytearray:
        data = bytearray(size)
        rest = memoryview(data)
        while rest:
            try:
                got = self._end.recv_into(rest)
            except ConnectionError:
                got = 0
            if not got:
                raise EOFError("the other end is gone")
            rest = rest[got:]
        return data

    def shut(self) -> None:
        """End the conversation for both, also where a thread is in the midst of one."""
        try:
            self._end.shutdown(socket.SHUT_RDWR)
        except OSError:
            return  # it has ended already

    def close(self) -> None:
        """Close this process's end."""
        self._end.close()
