"""The listener: accepts connections, finds out who they are, and keeps their number in bounds.

Bounds follow from the descriptors this process may have (the soft limit is raised to the hard one
at start): two for each connection, its socket and its pidfd, after a reserve for everything else.
One uid may have half of the places, and the last of them are kept for those who may administer.

Whoever finds no place is told so and closed, at once. A connection that has said nothing for a second,
or else one that has owed the rest of a frame for longest, gives way to a newcomer: it may be an idle one
of many, and `stoker status` must get in. If
descriptors run out all the same, one that is held in reserve is given up for a moment to accept and
refuse; and if even that fails, the listener rests. It stays readable all the while, so that trying
again at once would be a busy loop.
"""

import contextlib
import errno
import os
import socket
from collections import Counter
from collections.abc import Callable

from ..proto.connection import UNANSWERABLE, Connection
from ..proto.messages import Refusal
from ..proto.model import Role
from . import access
from .access import NO_GRANTS, Credentials, Grants
from .deadlines import Deadlines
from .log import Log
from .peer import Peer
from .poller import IN, Poller
from .refusals import StartRefusedError
from .socket import ListeningSocket

SO_PEERPIDFD = 77
"""Since Linux 6.5; Python has no name for it yet."""

SO_PASSRIGHTS = 83
"""Since Linux 6.16: switched off, descriptors sent to us are refused to the sender."""

DESCRIPTORS_RESERVED = 32
"""For standard streams, epoll, the journal and its log, locks, listing, snapshots."""

DESCRIPTORS_PER_CONNECTION = 2
ADMIN_SHARE = 8
"""One place in so many is kept for those who may administer."""

ACCEPTS_MAX = 8
"""In one round, so that a flood of connections does not hold up those that exist."""

REST_MS = 100
GIVES_WAY_MS = 1000
"""After so long without a first word, or the rest of what was begun."""

_OUT_OF_DESCRIPTORS = Refusal("too_many_connections", "out of file descriptors")
_NO_DESCRIPTORS = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})


def connections_max(descriptors: int) -> int:
    """How many connections fit into so many descriptors; at least a few, or nothing would work."""
    return max((descriptors - DESCRIPTORS_RESERVED) // DESCRIPTORS_PER_CONNECTION, 4)


class Listener:
    """Accepts on a listening socket while `is_pending`, and hands on `Peer`s."""

    def __init__(
        self,
        place: ListeningSocket,
        poller: Poller,
        log: Log,
        deadlines: Deadlines,
        *,
        capacity: int,
        own_uid: int,
        grants: Grants = NO_GRANTS,
        on_input: Callable[[Peer], None],
        on_evicted: Callable[[Peer], None],
    ) -> None:
        self._place = place
        self._poller = poller
        self._log = log
        self._deadlines = deadlines
        self._capacity = capacity
        self._own_uid = own_uid
        self._grants = grants
        self._on_input = on_input
        self._on_evicted = on_evicted
        self._reserve = os.open("/dev/null", os.O_RDONLY | os.O_CLOEXEC)
        self._last_id = 0
        self._by_uid: Counter[int] = Counter()
        self._rests_until_ms = 0
        self.is_pending = False
        """Somebody is waiting to be accepted."""
        self._watch()

    @property
    def connection_count(self) -> int:
        """How many connections there are."""
        return self._by_uid.total()

    def statistics(self) -> dict[str, int]:
        """For `status`."""
        return {"connections": self.connection_count, "connections_max": self._capacity}

    # --- the listening socket ------------------------------------------------------------------------

    def _watch(self) -> None:
        self._poller.add(self._place.listener.fileno(), IN, self._ready)

    def _ready(self, _: int) -> None:
        # Not accepted here: within a round of the poller no descriptor may be added.
        self.is_pending = True

    def keep_in_place(self) -> None:
        """Listen anew if the path does not lead here any more. Connections are not touched."""
        if self._place.is_in_place():
            return
        listening = self._place.listener.fileno()
        try:
            old = self._place.rebind()
        except StartRefusedError as error:
            self._log.event("socket_lost", burst=1, path=self._place.path, error=error)
            return
        self._poller.remove(listening)
        old.close()
        self._rests_until_ms = 0
        self._watch()
        self._log.event("socket_replaced", path=self._place.path)

    def rested(self, now_ms: int) -> None:
        """Accept again if the rest is over."""
        if self._rests_until_ms and self._rests_until_ms <= now_ms:
            self._rests_until_ms = 0
            self._watch()

    @property
    def rests(self) -> bool:
        """It waits for descriptors; `rested` is to be called in at most `REST_MS`."""
        return self._rests_until_ms > 0

    def close(self) -> None:
        """Accept nobody any more."""
        if not self._rests_until_ms:
            self._poller.remove(self._place.listener.fileno())
        self._place.close()
        os.close(self._reserve)

    # --- accepting -----------------------------------------------------------------------------------

    def accept(self, now_ms: int) -> list[Peer]:
        """Everybody who waits, up to a bound; those who may stay."""
        self.is_pending = False
        accepted: list[Peer] = []
        for _ in range(ACCEPTS_MAX):
            try:
                connected, _address = self._place.listener.accept()
            except BlockingIOError:
                break
            except ConnectionAbortedError:
                continue
            except OSError as error:
                if error.errno not in _NO_DESCRIPTORS:
                    raise
                self._out_of_descriptors(error, now_ms)
                break
            peer = self._admit(connected, now_ms)
            if peer is not None:
                accepted.append(peer)
            if self.rests:
                break
        return accepted

    def _admit(self, connected: socket.socket, now_ms: int) -> Peer | None:
        connected.setblocking(False)
        try:
            credentials = access.peer_credentials(connected)
            with contextlib.suppress(OSError):
                connected.setsockopt(socket.SOL_SOCKET, SO_PASSRIGHTS, 0)
            groups = access.peer_groups(connected) if self._grants.names_groups else ()
            roles = access.roles(credentials, self._own_uid, self._grants, groups)
            refusal = self._refusal(credentials, roles, now_ms)
            if refusal is not None:
                self._turn_away(connected, refusal, credentials.uid)
                return None
            pidfd = _pidfd(connected, credentials.pid)
        except OSError as error:
            if error.errno in _NO_DESCRIPTORS:
                # There was one for the connection, and none to watch its process by.
                self._log.event("accept_failed", burst=1, error=error, connections=self.connection_count)
                self._turn_away(connected, _OUT_OF_DESCRIPTORS, -1)
                self._rest(now_ms)
            else:
                self._log.event("connection_refused", burst=1, error=error)
                connected.close()
            return None
        return self._enter(connected, pidfd, credentials, roles, now_ms)

    def _enter(
        self,
        connected: socket.socket,
        pidfd: int | None,
        credentials: Credentials,
        roles: frozenset[Role],
        now_ms: int,
    ) -> Peer:
        self._last_id += 1
        peer = Peer(self._last_id, connected, pidfd, credentials, roles, self._poller, self._on_input)
        self._by_uid[credentials.uid] += 1
        self._deadlines.connected(peer, now_ms)
        peer.watch()
        return peer

    def left(self, peer: Peer) -> None:
        """A peer is closed: its place is free."""
        uid = peer.credentials.uid
        self._by_uid[uid] -= 1
        if not self._by_uid[uid]:
            del self._by_uid[uid]
        self._deadlines.left(peer)

    # --- limits --------------------------------------------------------------------------------------

    def _refusal(self, credentials: Credentials, roles: frozenset[Role], now_ms: int) -> Refusal | None:
        if not roles:
            return Refusal("forbidden", *access.why_nothing(credentials))
        if self._has_room(credentials.uid, roles) or self._evict(credentials.uid, now_ms):
            return None
        return Refusal(
            "too_many_connections",
            f"{self.connection_count} of {self._capacity} connections,"
            f" {self._by_uid[credentials.uid]} of uid {credentials.uid}",
        )

    def _has_room(self, uid: int, roles: frozenset[Role]) -> bool:
        kept = 0 if Role.ADMIN in roles else self._capacity // ADMIN_SHARE
        return self.connection_count < self._capacity - kept and self._by_uid[uid] < self._capacity // 2

    def _evict(self, uid: int, now_ms: int) -> bool:
        """Close the same user's connection that owes its words for longest, if it had time to speak."""
        peer, said = self._deadlines.longest_silent(uid, GIVES_WAY_MS, now_ms), "said nothing"
        if peer is None:
            peer, said = self._deadlines.longest_incomplete(uid, GIVES_WAY_MS, now_ms), "was in mid-frame"
        if peer is None:
            return False
        refusal = Refusal("too_many_connections", f"{said} for so long that it gave way to another")
        peer.send(peer.connection.refuse(UNANSWERABLE, refusal))
        peer.flush()
        self._on_evicted(peer)
        return True

    def _turn_away(self, connected: socket.socket, refusal: Refusal, uid: int) -> None:
        self._log.event("connection_refused", burst=1, code=refusal.code, uid=uid)
        with contextlib.suppress(OSError), connected:
            connected.send(Connection(access.NOTHING).refuse(UNANSWERABLE, refusal), socket.MSG_NOSIGNAL)

    def _out_of_descriptors(self, error: OSError, now_ms: int) -> None:
        self._log.event("accept_failed", burst=1, error=error, connections=self.connection_count)
        os.close(self._reserve)
        try:
            connected, _address = self._place.listener.accept()
            self._turn_away(connected, _OUT_OF_DESCRIPTORS, -1)
        except OSError:
            # Nothing can be done for them now; they wait in the backlog.
            pass
        finally:
            self._reserve = os.open("/dev/null", os.O_RDONLY | os.O_CLOEXEC)
        self._rest(now_ms)

    def _rest(self, now_ms: int) -> None:
        self._rests_until_ms = now_ms + REST_MS
        self._poller.remove(self._place.listener.fileno())


def _pidfd(connected: socket.socket, pid: int) -> int | None:
    """A pidfd of the process that connected; None if it cannot be had, which is no proof of anything."""
    try:
        return connected.getsockopt(socket.SOL_SOCKET, SO_PEERPIDFD)
    except OSError as error:
        if error.errno in _NO_DESCRIPTORS:
            raise
    try:
        # Older kernels: the pid could be another process by now, but only if the peer has died since,
        # and then the connection shows a hang-up anyway.
        return os.pidfd_open(pid)
    except ProcessLookupError:
        return None
