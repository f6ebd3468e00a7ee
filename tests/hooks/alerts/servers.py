"""Servers on 127.0.0.1 that receive alerts, or do not."""

from __future__ import annotations

import json
import socket
import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass
class Received:
    """What a server received."""

    port: int = 0
    status: int = 200
    bodies: list[Any] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)
    news: threading.Event = field(default_factory=threading.Event)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/hook/SECRET-PART"


@contextmanager
def serving(server: socketserver.BaseServer) -> Iterator[None]:
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@contextmanager
def http_server(status: int = 200) -> Iterator[Received]:
    received = Received(status=status)

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            received.bodies.append(json.loads(body))
            received.headers.append(dict(self.headers))
            received.paths.append(self.path)
            self.send_response(received.status)
            self.send_header("Location", "http://127.0.0.1:1/elsewhere")
            self.send_header("Content-Length", "0")
            self.end_headers()
            received.news.set()

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    received.port = server.server_address[1]
    with serving(server):
        yield received


@contextmanager
def smtp_server(refuse: int = 0) -> Iterator[Received]:
    """A mail server of the few commands that a client without TLS needs.

    Args:
        refuse: code with which it refuses a login.
    """
    received = Received()

    class Handler(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            self.reply("220 local")
            while line := self.rfile.readline().decode().strip():
                verb = line.split()[0].upper()
                if verb == "EHLO":
                    self.reply("250-local\r\n250 AUTH PLAIN")
                elif verb == "AUTH":
                    self.reply(f"{refuse} no SECRET-PART" if refuse else "235 ok")
                elif verb == "DATA":
                    self.reply("354 go")
                    self.take_message()
                elif verb == "QUIT":
                    self.reply("221 bye")
                    return
                else:
                    received.headers.append({verb: line})
                    self.reply("250 ok")

        def take_message(self) -> None:
            lines = []
            while (line := self.rfile.readline().decode().rstrip("\r\n")) != ".":
                lines.append(line)
            received.bodies.append("\n".join(lines))
            self.reply("250 ok")
            received.news.set()

        def reply(self, text: str) -> None:
            self.wfile.write(f"{text}\r\n".encode())

    server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler)
    received.port = server.server_address[1]
    with serving(server):
        yield received


@contextmanager
def silent_server() -> Iterator[Received]:
    """Accepts connections and never answers."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        yield Received(port=listener.getsockname()[1])


def dead_port() -> int:
    """A port on which nothing listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
