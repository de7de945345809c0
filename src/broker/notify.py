"""Messages to a service manager: ready, stopping, and the watchdog's sign of life.

The protocol is one datagram of `KEY=value` lines to the socket that `NOTIFY_SOCKET` names; without
that variable nothing is sent. The driver's loop is what feeds the watchdog, so a loop that hangs is
restarted.
"""

import contextlib
import os
import socket
from collections.abc import Mapping


class Notifier:
    """Tells the service manager, if there is one. Never fails: it is a courtesy."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        address = environ.get("NOTIFY_SOCKET", "")
        # A leading @ stands for the zero byte of an abstract address.
        self._address = "\0" + address[1:] if address.startswith("@") else address
        self.watchdog_ms = self._watchdog_ms(environ)
        """Half the time after which the manager takes silence for a hang; 0 if it does not watch."""

    @staticmethod
    def _watchdog_ms(environ: Mapping[str, str]) -> int:
        period_us, pid = environ.get("WATCHDOG_USEC", ""), environ.get("WATCHDOG_PID", "")
        if not period_us.isdigit() or (pid and pid != str(os.getpid())):
            return 0
        return int(period_us) // 2000

    def send(self, state: str) -> None:
        """Send one `KEY=value`, such as `READY=1`."""
        if not self._address:
            return
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
            sender.setblocking(False)
            sender.sendto(state.encode(), self._address)
