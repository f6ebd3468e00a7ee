"""File descriptors that other code of the process may close, and that may then name another file.

User code that closes all descriptors is common: daemons and launchers do it. The number of a closed
descriptor goes to the next file that is opened, so it must not be written, truncated or closed.
"""

from __future__ import annotations

import errno
import os


class OwnDescriptor:
    """An open descriptor, recognized by the file behind it.

    Args:
        fd: the descriptor.
    """

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self._status = os.fstat(fd)

    def is_open(self) -> bool:
        """Whether the descriptor still names the file that it named at first."""
        try:
            return os.path.samestat(self._status, os.fstat(self.fd))
        except OSError:
            return False

    def check(self) -> None:
        """Check that the descriptor is still open.

        Raises:
            OSError: if it was closed.
        """
        if not self.is_open():
            raise OSError(errno.EBADF, "other code of this process closed the recorder's files")
