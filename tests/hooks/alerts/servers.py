"""Servers on 127.0.0.1 that receive alerts, or do not."""

from __future__ import annotations

import json
import socket
import socketserver
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID


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


@dataclass(frozen=True)
class MailSettings:
    """How a mail server behaves."""

    refuse: int = 0
    """Code with which it refuses a login."""
    tls: ssl.SSLContext | None = None
    """Speak TLS, from the first byte or on request; None for plain text."""
    upgrade: bool = False
    """Begin in plain text, and offer STARTTLS."""


class MailHandler(socketserver.StreamRequestHandler):
    """The few commands that a client needs."""

    settings: MailSettings
    received: Received
    encrypted = False

    def handle(self) -> None:
        if self.settings.tls is not None and not self.settings.upgrade and not self.encrypt():
            return
        self.reply("220 local")
        while line := self.rfile.readline().decode().strip():
            verb = line.split()[0].upper()
            self.received.headers.append({verb: line, "encrypted": str(self.encrypted)})
            if not getattr(self, verb.lower(), self.accept)():
                return

    def ehlo(self) -> bool:
        offers_upgrade = self.settings.upgrade and not self.encrypted
        return self.reply(f"250-local\r\n250 {'STARTTLS' if offers_upgrade else 'AUTH PLAIN'}")

    def starttls(self) -> bool:
        return self.reply("220 go") and self.encrypt()

    def auth(self) -> bool:
        refuse = self.settings.refuse
        return self.reply(f"{refuse} no SECRET-PART" if refuse else "235 ok")

    def data(self) -> bool:
        self.reply("354 go")
        lines = []
        while (line := self.rfile.readline().decode().rstrip("\r\n")) != ".":
            lines.append(line)
        self.received.bodies.append("\n".join(lines))
        self.received.news.set()
        return self.accept()

    def quit(self) -> bool:
        self.reply("221 bye")
        return False

    def accept(self) -> bool:
        return self.reply("250 ok")

    def encrypt(self) -> bool:
        """The handshake; false if the client refuses the certificate."""
        assert self.settings.tls is not None
        try:
            self.request = self.settings.tls.wrap_socket(self.request, server_side=True)
        except ssl.SSLError:
            return False
        self.rfile, self.wfile = self.request.makefile("rb"), self.request.makefile("wb", 0)
        self.encrypted = True
        return True

    def finish(self) -> None:
        super().finish()
        self.request.close()

    def reply(self, text: str) -> bool:
        self.wfile.write(f"{text}\r\n".encode())
        return True


@contextmanager
def smtp_server(
    refuse: int = 0, tls: ssl.SSLContext | None = None, *, upgrade: bool = False
) -> Iterator[Received]:
    """A mail server; see `MailSettings`."""
    received = Received()
    parts = {"settings": MailSettings(refuse, tls, upgrade), "received": received}
    handler = type("Handler", (MailHandler,), parts)
    server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), handler)
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


def certificate(folder: Path, host: str) -> tuple[Path, ssl.SSLContext]:
    """A self-signed certificate for a host: the file that a client trusts, and a server's side."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, host)])
    now = datetime.now(UTC)
    signed = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(hours=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(host)]), critical=False)
        .sign(key, hashes.SHA256())
    )
    trusted, secret = folder / "trusted.pem", folder / "server.pem"
    trusted.write_bytes(signed.public_bytes(Encoding.PEM))
    plain = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    secret.write_bytes(plain + trusted.read_bytes())
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(secret)
    return trusted, context


def dead_port() -> int:
    """A port on which nothing listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
