"""A connection to a server that a test can cut and restore."""

import select
import socket
import threading
from contextlib import suppress
from typing import Self

_CHUNK = 1 << 16


class CutConnection:
    """Forwards each connection to a port of this machine, until it is cut.

    Chromium keeps open sockets when it is switched offline, so the network fails here instead.

    Args:
        port: of the server.
    """

    def __init__(self, port: int) -> None:
        self._target = port
        self._is_cut = False
        self._ends: list[socket.socket] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.cut()
        _shut(self._listener)
        for thread in self._threads:
            thread.join()
        self._listener.close()

    def cut(self) -> None:
        """End all connections and refuse new ones."""
        self._is_cut = True
        for each in self._ends:
            _shut(each)
        self._ends.clear()

    def restore(self) -> None:
        """Accept connections again."""
        self._is_cut = False

    def _accept(self) -> None:
        with suppress(OSError):  # the listener was shut
            while True:
                client, _ = self._listener.accept()
                if self._is_cut:
                    client.close()
                    continue
                self._ends.append(client)
                thread = threading.Thread(target=self._forward, args=(client,), daemon=True)
                self._threads.append(thread)
                thread.start()

    def _forward(self, client: socket.socket) -> None:
        """Pass on what both sides send, until one of them ends."""
        with (
            client,
            suppress(OSError),
            socket.create_connection(("127.0.0.1", self._target)) as server,
        ):
            other = {client: server, server: client}
            while True:
                for side in select.select(list(other), [], [])[0]:
                    data = side.recv(_CHUNK)
                    if not data:
                        return
                    other[side].sendall(data)


def _shut(each: socket.socket) -> None:
    """Wake the thread that waits for this socket, and let it end."""
    with suppress(OSError):
        each.shutdown(socket.SHUT_RDWR)
