"""Intake: shares, turns, and how much is taken up for somebody who takes no answers."""

import json
import os
import socket
from collections.abc import Iterator

import pytest
import trio
from support.full_journal import FullJournal
from support.shell import eventually, serving, wait_for
from support.waiting import wait_at_rest
from support.wire_peer import WirePeer, frame

from stoker.broker.access import EVERYTHING, Credentials
from stoker.broker.deadlines import Deadlines
from stoker.broker.intake import (
    FIRST_REQUESTS,
    HEARD_OUT_REQUESTS,
    LATELY_MS,
    LEAST_REQUESTS,
    LOOK_UPS_MAX,
    PASSES_MAX,
    QUEUED_MAX,
    ROUND_LOOK_UPS,
    ROUND_MS,
    ROUND_REQUESTS,
    SHARES_MAX,
    TURN_REQUESTS,
    TURNS_MS,
    VAIN_MAX,
    Intake,
)
from stoker.broker.peer import Peer
from stoker.broker.poller import Poller
from stoker.proto import limits
from stoker.proto.connection import Request
from stoker.proto.messages import Cancel, Enqueue, Help, Jobs, Kick, Message, Show, Status, Wait, Why
from stoker.proto.model import Role
from stoker.proto.ops import BY_MESSAGE

SO_SNDBUFFORCE = 32
"""Of Linux; Python has no name for it."""


class Desk:
    """An intake, and everything it took up, by peer."""

    def __init__(self) -> None:
        self.taken: list[tuple[Peer, Request]] = []
        self.ended: list[Peer] = []
        self.now_ms = self.turn_takes_ms = 0.0
        self.round_began_ms: float | None = None
        """Unless it has just begun."""
        self.is_stuck = False
        self.looking_up = 0
        self.deadlines = Deadlines()
        self.intake = Intake(
            self.deadlines,
            round_ms=lambda: int(self.now_ms if self.round_began_ms is None else self.round_began_ms),
            clock_ms=lambda: int(self.now_ms),
            request=self._request,
            said=lambda peer, event: peer.send(event.data),
            ended=self.ended.append,
            is_stuck=lambda: self.is_stuck,
            looking_up=lambda: self.looking_up,
        )
        self._poller = Poller()
        self._sockets: list[socket.socket] = []

    def _request(self, peer: Peer, request: Request) -> None:
        peer.unanswered += 1
        self.now_ms += self.turn_takes_ms
        self.taken.append((peer, request))

    def peer(self) -> Peer:
        ours, theirs = socket.socketpair()
        number = len(self._sockets) + 1
        peer = Peer(number, ours, None, Credentials(7, 1, 1), EVERYTHING, self._poller, lambda _: None)
        peer.watch()
        self._sockets += [ours, theirs]
        return peer

    def says(self, peer: Peer, message: Message, count: int, *, begin: int = 1) -> None:
        """The peer has sent so many of these, and it is heard."""
        number = BY_MESSAGE[type(message)].number
        data = b"".join(frame(number, request, *message) for request in range(begin, begin + count))
        peer.connection.receive_data(data)
        self.intake.hear(peer)

    def give_turns(self) -> int:
        """Rounds until nobody has a turn; how much was taken up in all."""
        while self.intake.has_turns:
            self.intake.take_turns()
        return len(self.taken)

    def answer(self, peer: Peer, count: int) -> None:
        """The first so many of its requests that were taken up are answered, and it has read that."""
        for each, request in [entry for entry in self.taken if entry[0] is peer][:count]:
            self.intake.answered(each, request.number)
        peer.flush()
        self.intake.defer([peer])

    def close(self) -> None:
        for each in self._sockets:
            each.close()
        self._poller.close()


@pytest.fixture
def desk() -> Iterator[Desk]:
    desk = Desk()
    yield desk
    desk.close()


def numbers(desk: Desk, peer: Peer) -> list[int]:
    return [request.number for each, request in desk.taken if each is peer]


# --- shares and turns ------------------------------------------------------------------------------------


ONE_ROUND = FIRST_REQUESTS + PASSES_MAX * TURN_REQUESTS


def test_a_peer_has_a_share_and_the_rest_in_later_turns(desk: Desk) -> None:
    peer = desk.peer()
    desk.says(peer, Cancel("a"), 2 * ONE_ROUND)
    assert len(desk.taken) == FIRST_REQUESTS
    desk.intake.take_turns()
    assert len(desk.taken) == ONE_ROUND
    assert desk.give_turns() == 2 * ONE_ROUND
    assert numbers(desk, peer) == list(range(1, 2 * ONE_ROUND + 1))


def test_others_have_their_turn_before_one_has_its_second(desk: Desk) -> None:
    peers = [desk.peer() for _ in range(2)]
    for peer in peers:
        desk.says(peer, Cancel("a"), 2 * ONE_ROUND)
    desk.turn_takes_ms = 1
    desk.intake.take_turns()
    turn = TURN_REQUESTS // 2
    assert [len(numbers(desk, peer)) for peer in peers] == [FIRST_REQUESTS + turn, FIRST_REQUESTS]
    desk.intake.take_turns()
    assert [len(numbers(desk, peer)) for peer in peers] == [FIRST_REQUESTS + turn] * 2


def test_a_round_has_room_for_so_much_and_a_little_of_whoever_was_read(desk: Desk) -> None:
    for _ in range(ROUND_REQUESTS // FIRST_REQUESTS):
        assert desk.intake.has_room
        desk.says(desk.peer(), Cancel("a"), ONE_ROUND)
    assert not desk.intake.has_room
    assert len(desk.taken) == ROUND_REQUESTS
    late = desk.peer()
    desk.says(late, Cancel("a"), ONE_ROUND)
    assert numbers(desk, late) == list(range(1, LEAST_REQUESTS + 1))
    desk.intake.begin_round()
    assert desk.intake.has_room


def test_who_was_answered_in_a_full_round_goes_on_in_its_turn(desk: Desk) -> None:
    for _ in range(ROUND_REQUESTS // FIRST_REQUESTS):
        desk.says(desk.peer(), Cancel("a"), FIRST_REQUESTS)
    peer = desk.peer()
    desk.says(peer, Cancel("a"), 1)
    peer.connection.receive_data(frame(BY_MESSAGE[Cancel].number, 2, "a"))
    desk.intake.hear_more([peer])
    assert numbers(desk, peer) == [1]
    desk.give_turns()
    assert numbers(desk, peer) == [1, 2]


def test_who_has_heard_its_report_in_a_full_round_waits_for_no_turn(desk: Desk) -> None:
    peer = desk.peer()
    desk.says(peer, Status(), 1)
    desk.give_turns()
    desk.answer(peer, 1)
    for _ in range(ROUND_REQUESTS // FIRST_REQUESTS):
        desk.says(desk.peer(), Cancel("a"), FIRST_REQUESTS + 1)
    desk.intake.hear_more([peer])
    desk.says(peer, Cancel("a"), 1, begin=2)
    assert numbers(desk, peer) == [1, 2]


def test_who_has_said_just_what_a_round_takes_waits_for_no_turn(desk: Desk) -> None:
    peer = desk.peer()
    desk.says(peer, Cancel("a"), FIRST_REQUESTS)
    assert not desk.intake.has_turns
    desk.says(peer, Cancel("a"), 1, begin=FIRST_REQUESTS + 1)
    assert len(numbers(desk, peer)) == FIRST_REQUESTS + 1


@pytest.mark.parametrize("role", [Role.WORK, Role.SUPERVISE])
def test_who_serves_is_heard_in_a_full_round(desk: Desk, role: Role) -> None:
    for _ in range(ROUND_REQUESTS // FIRST_REQUESTS):
        desk.says(desk.peer(), Cancel("a"), FIRST_REQUESTS)
    server = desk.peer()
    server.connection.role = role
    desk.says(server, Cancel("a"), 100)
    assert len(numbers(desk, server)) == FIRST_REQUESTS
    desk.intake.begin_round()
    desk.give_turns()
    desk.says(server, Cancel("a"), 100, begin=101)
    assert len(numbers(desk, server)) == 200


def test_a_read_that_ends_in_mid_frame_takes_room_as_well(desk: Desk) -> None:
    peer, byte = desk.peer(), frame(BY_MESSAGE[Cancel].number, 1, "a" * ROUND_REQUESTS)[:1]
    for _ in range(ROUND_REQUESTS):
        assert desk.intake.has_room
        peer.connection.receive_data(byte)
        desk.intake.hear(peer)
    assert not desk.intake.has_room


def test_who_asks_does_not_wait_behind_those_who_say_much(desk: Desk) -> None:
    for _ in range(50):
        desk.says(desk.peer(), Cancel("a"), ONE_ROUND)
    asker = desk.peer()
    desk.says(asker, Show("a"), 1)
    desk.turn_takes_ms = TURNS_MS
    desk.intake.take_turns()
    assert numbers(desk, asker) == [1]


def test_who_says_much_gets_on_beside_those_who_ask(desk: Desk) -> None:
    talker = desk.peer()
    desk.says(talker, Cancel("a"), ONE_ROUND)
    for _ in range(50):
        desk.says(desk.peer(), Why("a"), 1)
    desk.turn_takes_ms = TURNS_MS
    desk.intake.take_turns()
    assert len(numbers(desk, talker)) == FIRST_REQUESTS + TURN_REQUESTS // SHARES_MAX


def test_who_waits_for_the_journal_is_bounded_for_all_peers_together(desk: Desk) -> None:
    desk.says(desk.peer(), Cancel("a"), ONE_ROUND)
    desk.looking_up = LOOK_UPS_MAX
    assert not desk.intake.has_turns
    late = desk.peer()
    desk.says(late, Cancel("a"), ONE_ROUND)
    assert len(numbers(desk, late)) == LEAST_REQUESTS
    desk.looking_up = LOOK_UPS_MAX // 2
    assert not desk.intake.has_turns
    desk.looking_up -= 1
    assert desk.intake.has_turns


@pytest.mark.parametrize(("ago_ms", "turns"), [(1, 1), (LATELY_MS - 1, 1), (LATELY_MS, PASSES_MAX)])
def test_turns_are_few_while_others_have_something_to_say(desk: Desk, ago_ms: int, turns: int) -> None:
    talker, other = desk.peer(), desk.peer()
    desk.says(talker, Cancel("a"), 2 * ONE_ROUND)
    desk.says(other, Cancel("a"), 1)
    desk.now_ms += ago_ms
    desk.intake.take_turns()
    assert len(numbers(desk, talker)) == FIRST_REQUESTS + turns * TURN_REQUESTS


@pytest.mark.parametrize("waiting", [1, 2, SHARES_MAX, 2 * SHARES_MAX])
def test_turns_are_the_shorter_the_more_wait_for_theirs(desk: Desk, waiting: int) -> None:
    peers = [desk.peer() for _ in range(waiting)]
    for peer in peers:
        desk.says(peer, Cancel("a"), 2 * ONE_ROUND)
    desk.turn_takes_ms = TURNS_MS
    desk.intake.take_turns()
    assert len(numbers(desk, peers[0])) == FIRST_REQUESTS + TURN_REQUESTS // min(waiting, SHARES_MAX)


@pytest.mark.parametrize(
    ("waiting", "rounds"), [(SHARES_MAX, [False, True, False, True]), (SHARES_MAX - 1, [True] * 4)]
)
def test_round_in_which_somebody_else_was_heard_gives_no_turns_beside_a_crowd(
    desk: Desk, waiting: int, rounds: list[bool]
) -> None:
    for _ in range(waiting):
        desk.says(desk.peer(), Cancel("a"), ONE_ROUND)
    other, gave_turns = desk.peer(), list[bool]()
    for number in range(len(rounds)):
        desk.now_ms += 1
        desk.intake.begin_round()
        desk.says(other, Cancel("a"), 1, begin=1 + number)
        before = len(desk.taken)
        desk.intake.take_turns()
        gave_turns.append(len(desk.taken) > before)
    assert gave_turns == rounds


def test_who_asks_now_and_then_does_not_wait_behind_those_who_ask_without_end(desk: Desk) -> None:
    for _ in range(50):
        desk.says(desk.peer(), Why("a"), 50)
    desk.turn_takes_ms = TURNS_MS
    for _ in range(100):
        desk.intake.take_turns()
    asker = desk.peer()
    desk.says(asker, Why("a"), 1)
    for _ in range(2):
        desk.intake.take_turns()
    assert numbers(desk, asker) == [1]


def test_reading_ends_when_the_round_has_lasted_long_enough(desk: Desk) -> None:
    desk.round_began_ms = desk.now_ms
    desk.now_ms += ROUND_MS - 1
    assert desk.intake.has_room
    desk.now_ms += 1
    assert not desk.intake.has_room


def test_reading_ends_when_so_much_has_to_be_looked_up(desk: Desk) -> None:
    desk.looking_up = 1000
    desk.intake.begin_round()
    desk.looking_up += ROUND_LOOK_UPS - 1
    assert desk.intake.has_room
    desk.looking_up += 1
    assert not desk.intake.has_room
    desk.intake.begin_round()
    assert desk.intake.has_room


def test_a_costly_request_waits_for_its_turn_and_holds_back_what_follows(desk: Desk) -> None:
    peer = desk.peer()
    desk.says(peer, Status(), 1)
    desk.says(peer, Cancel("a"), 1, begin=2)
    assert desk.taken == []
    desk.give_turns()
    assert numbers(desk, peer) == [1]
    desk.answer(peer, 1)
    desk.give_turns()
    assert numbers(desk, peer) == [1, 2]


def test_a_round_gives_turns_for_its_time_and_at_least_one(desk: Desk) -> None:
    for _ in range(3):
        desk.says(desk.peer(), Why("a"), 1)
    desk.turn_takes_ms = TURNS_MS
    desk.intake.take_turns()
    assert len(desk.taken) == 1
    assert desk.give_turns() == 3


def test_a_peer_that_waits_for_its_turn_is_not_overdue_with_a_frame(desk: Desk) -> None:
    peer = desk.peer()
    desk.says(peer, Cancel("a"), FIRST_REQUESTS + 1)
    desk.now_ms += 2 * limits.FRAME_MS_MAX
    assert list(desk.deadlines.overdue(int(desk.now_ms))) == []


# --- being behind ----------------------------------------------------------------------------------------


BEHIND = FIRST_REQUESTS + 16 * TURN_REQUESTS
"""The share with which the answers to so many are too many, of 256 bytes each."""


@pytest.mark.parametrize(
    ("message", "count"),
    [
        (Status(), 1),
        (Jobs(limit=limits.JOBS_PAGE_MAX), 1),
        (Show("a", True), 1),
        (Show("a"), 17),
        (Why("a"), 65),
        (Wait("a"), 17),
        (Kick(queue="a", limit=limits.JOBS_PAGE_MAX), 1),
        (Cancel("a"), BEHIND),
        (Enqueue("a", "b", b""), BEHIND),
    ],
    ids=str,
)
def test_so_much_is_taken_up_of_a_peer_that_gets_no_answer(desk: Desk, message: Message, count: int) -> None:
    peer = desk.peer()
    desk.says(peer, message, 4000)
    assert desk.give_turns() == count
    desk.answer(peer, count)
    assert count < desk.give_turns() <= 2 * count + TURN_REQUESTS


def test_what_the_connection_answers_by_itself_is_bounded_for_a_peer_that_reads_nothing(desk: Desk) -> None:
    peer = desk.peer()
    desk.says(peer, Help(), 1000)
    desk.give_turns()
    assert peer.is_behind
    assert peer.connection.next_event() is not None


def test_requests_that_wait_for_something_to_happen_hold_nothing_back(desk: Desk) -> None:
    peer = desk.peer()
    desk.says(peer, Wait("a"), 2000)
    waiting = 0
    while waiting < desk.give_turns():
        waiting += 1
        desk.intake.waits(peer, waiting)
    assert waiting == 2000


def test_enqueues_that_wait_for_room_hold_nothing_back(desk: Desk) -> None:
    peer = desk.peer()
    desk.says(peer, Enqueue("a", "b", b"", wait_ms=1000), 2000)
    assert desk.give_turns() == 2000


def test_a_request_id_used_twice_leaves_nothing_reserved(desk: Desk) -> None:
    peer = desk.peer()
    desk.says(peer, Show("a"), 1)
    desk.says(peer, Show("a"), 1, begin=1)
    desk.give_turns()
    desk.answer(peer, 2)
    assert (peer.reserved_bytes, peer.owes, peer.unanswered) == (0, {}, 0)


# --- all peers together ------------------------------------------------------------------------------------


def full_of_payloads(desk: Desk) -> Peer:
    """One peer has a payload made for it; the others' turn has not come."""
    peers = [desk.peer() for _ in range(3)]
    for peer in peers:
        desk.says(peer, Show("a", True), 1)
    desk.give_turns()
    assert [peer for peer, _ in desk.taken] == peers[:1]
    return peers[0]


def test_what_is_reserved_for_all_peers_is_bounded(desk: Desk) -> None:
    first = full_of_payloads(desk)
    assert not desk.intake.has_turns
    desk.answer(first, 1)
    desk.give_turns()
    assert len(desk.taken) == 2


def test_who_ended_frees_what_was_reserved_for_it(desk: Desk) -> None:
    desk.intake.left(full_of_payloads(desk))
    desk.give_turns()
    assert len(desk.taken) == 2


def test_a_report_gets_through_while_nothing_gets_to_the_disk(desk: Desk) -> None:
    full_of_payloads(desk)
    operator = desk.peer()
    desk.says(operator, Status(), 1)
    desk.is_stuck = True
    desk.give_turns()
    assert numbers(desk, operator) == [1]


def test_who_ended_has_no_turn_any_more(desk: Desk) -> None:
    first, second = desk.peer(), desk.peer()
    for peer in (first, second):
        desk.says(peer, Why("a"), 1)
    desk.intake.left(second)
    desk.give_turns()
    assert [peer for peer, _ in desk.taken] == [first]


# --- the end ---------------------------------------------------------------------------------------------


def test_who_is_gone_is_heard_to_the_end_but_nothing_is_made_for_it(desk: Desk) -> None:
    peer = desk.peer()
    peer.gone = True
    desk.says(peer, Status(), VAIN_MAX)
    desk.says(peer, Cancel("a"), 1200, begin=VAIN_MAX + 1)
    desk.give_turns()
    assert len(numbers(desk, peer)) == len(set(numbers(desk, peer))) == 1200
    assert desk.ended[-1] is peer


@pytest.mark.parametrize("message", [Status(), Wait("a"), Help(), Cancel("!")], ids=repr)
def test_who_is_gone_and_said_much_in_vain_is_heard_no_further(desk: Desk, message: Message) -> None:
    peer = desk.peer()
    peer.gone = True
    desk.says(peer, message, VAIN_MAX + 1)
    desk.says(peer, Cancel("a"), 1, begin=VAIN_MAX + 2)
    desk.give_turns()
    assert numbers(desk, peer) == []
    assert desk.ended[-1] is peer


def test_an_older_connection_is_heard_out_at_once(desk: Desk) -> None:
    peer = desk.peer()
    desk.says(peer, Cancel("a"), FIRST_REQUESTS + HEARD_OUT_REQUESTS)
    desk.intake.hear_out(peer)
    assert numbers(desk, peer) == list(range(1, FIRST_REQUESTS + HEARD_OUT_REQUESTS + 1))
    assert not desk.intake.has_room


def test_an_older_connection_is_heard_so_far_and_no_further(desk: Desk) -> None:
    peer = desk.peer()
    desk.says(peer, Cancel("a"), FIRST_REQUESTS + HEARD_OUT_REQUESTS + 1)
    desk.intake.hear_out(peer)
    desk.give_turns()
    assert len(desk.taken) == FIRST_REQUESTS + HEARD_OUT_REQUESTS


def test_requests_of_who_is_gone_are_none_of_those_that_wait(desk: Desk) -> None:
    peer = desk.peer()
    desk.says(peer, Enqueue("a", "b", b"", wait_ms=1000), 1)
    peer.gone = True
    desk.says(peer, Enqueue("a", "b", b""), 2)
    first, *later = numbers(desk, peer)
    assert first == 1
    assert len({first, *later}) == 3


# --- in the driver -----------------------------------------------------------------------------------------


@pytest.mark.trio
async def test_lines_sent_at_once_are_answered_without_waiting_for_the_clock(socket_path: str) -> None:
    async with serving(socket_path) as shell:
        peer = await shell.connect()
        with trio.fail_after(2):
            await peer.send(b'{"op": "status"}\n' * 100)
            for _ in range(100):
                assert json.loads(await peer.line())["ok"]


@pytest.mark.trio
@pytest.mark.parametrize("message", [Cancel("a"), Wait("a"), Show("a"), Why("a"), Jobs()], ids=repr)
async def test_all_that_was_sent_at_once_is_answered(socket_path: str, message: Message) -> None:
    async with serving(socket_path) as shell:
        peer = await shell.connect()
        number = BY_MESSAGE[type(message)].number
        await peer.send(b"".join(frame(number, request, *message) for request in range(1, 1501)))
        answered = [(await peer.receive())[1] for _ in range(1500)]
        assert answered == list(range(1, 1501))


@pytest.mark.trio
async def test_who_has_much_to_be_looked_up_while_the_disk_is_full_is_heard_further(socket_path: str) -> None:
    journal = FullJournal()
    async with serving(socket_path, journal=journal) as shell:
        journal.is_full = True
        await (await shell.connect()).say(Enqueue("a", "b", b"", True))
        await wait_for(shell, "storage_full")
        peer, count = await shell.connect(), 2 * QUEUED_MAX
        number = BY_MESSAGE[Cancel].number
        await peer.send(b"".join(frame(number, request, f"j{request}") for request in range(count)))

        async def is_bounded() -> bool:
            return QUEUED_MAX <= shell.driver.questions.waiting_count < count

        await eventually(is_bounded, "as much waits for the disk as may")
        await wait_at_rest(0.02)
        assert shell.driver.questions.waiting_count < count
        journal.is_full = False
        assert [(await peer.receive())[1] for _ in range(count)] == list(range(count))


@pytest.mark.trio
async def test_last_words_of_a_peer_that_is_gone_all_count(socket_path: str) -> None:
    async with serving(socket_path) as shell:
        peer, operator = await shell.connect(), await shell.connect()
        count = 3 * ONE_ROUND
        # Begun with something costly, whose turn would come later.
        await peer.send(frame(16, 1) + b"".join(frame(10, 2 + n, f"j{n}", "b", b"") for n in range(count)))
        peer.close()
        await all_ready(operator, count)


@pytest.mark.trio
async def test_last_words_count_although_their_sender_had_a_request_that_waits(socket_path: str) -> None:
    async with serving(socket_path) as shell:
        peer, operator = await shell.connect(), await shell.connect()
        line = '{{"op": "enqueue", "id": "a{}", "kind": "k", "payload": ""}}\n'
        await peer.send(line.format(0).encode() + b'{"op": "wait", "id": "a0", "timeout_ms": 60000}\n')
        assert json.loads(await peer.line())["ok"]
        await peer.send("".join(map(line.format, range(1, 100))).encode())
        peer.close()
        await all_ready(operator, 100)


@pytest.mark.trio
@pytest.mark.skipif(os.getuid() != 0, reason="only root may have so large a buffer")
async def test_last_words_count_however_much_fits_into_a_socket(socket_path: str) -> None:
    async with serving(socket_path) as shell:
        operator = await shell.connect()
        with socket.socket(socket.AF_UNIX) as leaver:
            leaver.setsockopt(socket.SOL_SOCKET, SO_SNDBUFFORCE, 16 * limits.MIB)
            leaver.connect(socket_path)
            leaver.settimeout(0)
            for number in range(10):
                leaver.sendall(frame(10, 1 + number, f"j{number}", "b", b"x" * 900_000))
        await all_ready(operator, 10)


async def all_ready(operator: WirePeer, count: int) -> None:
    async def are() -> bool:
        queues = (await operator.ask(Status()))[2]["queues"]
        return bool(queues.get("default", {}).get("ready") == count)

    await eventually(are, "all that was enqueued is there")
