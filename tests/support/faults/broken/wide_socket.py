"""A listening socket whose mode is set after it was bound, as it is mostly done."""

import os
import select
import socket

from stoker.broker.socket import ListeningSocket

GAP_S = 0.002
"""Between the two steps a machine may do something else. Here it always does."""


class WideSocket(ListeningSocket):
    """See the module."""

    def _bind(self) -> socket.socket:
        self._remove_stale()
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        listener.bind(self.path)
        select.select([], [], [], GAP_S)
        os.chmod(self.path, self._mode)
        listener.listen()
        found = os.lstat(self.path)
        self._place = (found.st_dev, found.st_ino)
        return listener
