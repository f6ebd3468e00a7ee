"""A program in a pseudo-terminal, whose output is read all the time."""

import codecs
import fcntl
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import termios
import threading
import time

_AGAIN = 3.0
PATIENCE = 180.0
"""Seconds to wait for a program that shares its cores with others; only failures take as long."""
_STYLES = re.compile(r"\x1b(?:\[[0-9;:]*(?:m|$)|$)")
"""Styles. One that is not complete yet ends the output; as text, it would vanish again."""


def without_styles(printed):
    """What was printed up to now, without styles."""
    return _STYLES.sub("", printed)


class Terminal:
    """A pseudo-terminal with a `grpodoctor` command in it.

    Args:
        arguments: words after the program's name.
        reads: whether the terminal takes output; one that does not is a stalled connection.
    """

    def __init__(self, *arguments, rows=24, columns=80, cwd=None, reads=True, env=None):
        self.master, slave = pty.openpty()
        self._resize(rows, columns)
        # These variables, which another test may have set, outweigh the terminal's own size.
        inherited = {k: v for k, v in os.environ.items() if k not in ("COLUMNS", "LINES")}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "grpodoctor", *map(str, arguments)],
            stdin=slave,
            stdout=slave,
            stderr=slave,
            cwd=cwd,
            env={**inherited, "TERM": "xterm-256color", **(env or {})},
        )
        os.close(slave)
        self.seen = ""
        self._reader = threading.Thread(target=self._read, daemon=True)
        if reads:
            self._reader.start()

    def _read(self):
        decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        while True:
            try:
                part = os.read(self.master, 65536)
            except OSError:
                return
            if not part:
                return
            self.seen += decoder.decode(part)

    def _resize(self, rows, columns):
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def resize(self, rows, columns):
        """Change the size, as a window manager does."""
        self._resize(rows, columns)
        self.process.send_signal(signal.SIGWINCH)

    def fill_up(self):
        """Wait until a terminal that reads nothing has taken as much as it holds."""
        ends, before = time.monotonic() + PATIENCE, 0
        while before == 0 or self._waiting() > before:
            assert time.monotonic() < ends, "the program printed nothing"
            before = self._waiting()
            time.sleep(0.5)

    def _waiting(self):
        """Number of bytes that were printed and not read."""
        return struct.unpack("i", fcntl.ioctl(self.master, termios.FIONREAD, bytes(4)))[0]

    def press(self, keys):
        """Type keys."""
        os.write(self.master, keys.encode())

    @property
    def text(self):
        """Everything that was printed, without styles; its beginning never changes."""
        return without_styles(self.seen)

    def read_until(self, word, start=0):
        """Wait until a word was printed after position `start`; returns the text up to now."""
        ends = time.monotonic() + PATIENCE
        while word not in self.text[start:]:
            assert time.monotonic() < ends, f"{word!r} did not come: {self.text[-2000:]!r}"
            time.sleep(0.02)
        return self.text

    def press_until(self, keys, word):
        """Type keys every few seconds until a word is printed."""
        ends = time.monotonic() + PATIENCE
        while word not in self.text:
            assert time.monotonic() < ends, f"{word!r} did not come: {self.text[-2000:]!r}"
            self.press(keys)
            again = time.monotonic() + _AGAIN
            while word not in self.text and time.monotonic() < again:
                time.sleep(0.02)

    def wait(self):
        """The exit code, once all output was read."""
        code = self.process.wait(PATIENCE)
        self._reader.join(PATIENCE)
        return code

    def hang_up(self):
        """Close the terminal's window."""
        os.close(self.master)
        self.master = -1

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait(PATIENCE)
        if self.master >= 0:
            os.close(self.master)
