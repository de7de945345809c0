"""The worker's link: what is owed survives every kind of lost connection, and nothing is answered twice."""

import os
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from stoker.proto import codec, messages, work
from stoker.proto.frames import FrameReader
from stoker.worker.link import HelloRefusedError, Link

pytestmark = pytest.mark.slow

IDENTITY = ("boot-id-1", 1, 2, 3, "nonce-12")
WELCOME = messages.Welcome(1, 1, 15_000, 1, 1, 1)
HELLO_OP = messages.OPS[messages.Hello][0]
ACK_OP = work.OPS[work.Ack][0]
RELEASE_OP = work.OPS[work.Release][0]
JOB_OP = work.OPS[work.Job][0]

Scene = Callable[["Script"], None]


class Script:
    """One accepted connection, played by a test's function in a thread."""

    def __init__(self, sock: socket.socket) -> None:
        self.socket = sock
        self._reader = FrameReader()

    def read(self) -> list[Any]:
        """The next frame."""
        while (body := self._reader.next_frame()) is None:
            data = self.socket.recv(65536)
            assert data, "the worker closed"
            self._reader.feed(data)
        return codec.decode(body)

    def send(self, op: int, number: int, *fields: Any) -> None:
        self.socket.sendall(codec.encode([op, number, *fields]))

    def welcome(self, lost: list[list[int]] | None = None) -> list[Any]:
        """Read a hello and answer it; the hello."""
        hello = self.read()
        assert hello[0] == HELLO_OP
        self.send(messages.ANSWER, hello[1], *WELCOME._replace(lost=lost or []))
        return hello


class Stage:
    """A listening socket that plays one scene for each connection, in order."""

    def __init__(self, path: str) -> None:
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(path)
        self._listener.listen()
        self._listener.settimeout(10)
        self._errors: list[BaseException] = []
        self._thread: threading.Thread | None = None

    def play(self, *scenes: Scene) -> None:
        self._thread = threading.Thread(target=self._play, args=(scenes,))
        self._thread.start()

    def _play(self, scenes: tuple[Scene, ...]) -> None:
        try:
            for scene in scenes:
                sock, _ = self._listener.accept()
                sock.settimeout(10)
                with sock:
                    scene(Script(sock))
        except BaseException as error:  # noqa: BLE001 - handed to the test's own thread
            self._errors.append(error)

    def close(self) -> None:
        """Wait for the last scene; raise what went wrong in one."""
        if self._thread is not None:
            self._thread.join()
        self._listener.close()
        if self._errors:
            raise self._errors[0]


@pytest.fixture
def stage(socket_path: str) -> Iterator[Stage]:
    stage = Stage(socket_path)
    yield stage
    stage.close()


@pytest.fixture
def link(socket_path: str) -> Iterator[Link]:
    link = Link(socket_path, lambda held: messages.Hello(1, "work", "w", IDENTITY, b"", ["k"], 1, held))
    yield link
    link.close()


def a_job(counter: int) -> work.Job:
    return work.Job([1, counter], f"job-{counter}", counter, "k", "default", 1, b"", 1000, 1000, 0, None)


def send_job(script: Script, counter: int) -> None:
    script.send(JOB_OP, 0, *a_job(counter))


def receive_until_closed(link: Link) -> None:
    while link.is_open:
        link.receive()


def test_no_broker_means_not_open(short_directory: Path) -> None:
    link = Link(str(short_directory / "none.sock"), lambda held: messages.Hello(1, "work"))
    assert not link.open()
    assert link.is_dead()


def test_hello_is_answered_and_jobs_come(stage: Stage, link: Link) -> None:
    def scene(script: Script) -> None:
        hello = script.welcome()
        assert hello[2:9] == [1, "work", "w", list(IDENTITY), b"", ["k"], 1]
        send_job(script, 7)

    stage.play(scene)
    assert link.open()
    receive_until_closed(link)
    assert list(link.jobs) == [a_job(7)]


def test_job_that_comes_with_the_welcome_is_kept(stage: Stage, link: Link) -> None:
    def scene(script: Script) -> None:
        hello = script.read()
        answer = codec.encode([messages.ANSWER, hello[1], *WELCOME])
        script.socket.sendall(answer + codec.encode([JOB_OP, 0, *a_job(7)]))

    stage.play(scene)
    assert link.open()
    assert list(link.jobs) == [a_job(7)]


def test_confirmed_answer_is_no_longer_owed(stage: Stage, link: Link) -> None:
    def scene(script: Script) -> None:
        script.welcome()
        ack = script.read()
        assert ack[0] == ACK_OP
        script.send(messages.ANSWER, ack[1])

    stage.play(scene)
    assert link.open()
    link.answer(work.Ack((1, 7)))
    assert link.owes
    receive_until_closed(link)
    assert not link.owes


def test_unconfirmed_answer_is_held_and_repeated(stage: Stage, link: Link) -> None:
    def first(script: Script) -> None:
        script.welcome()
        script.read()

    def second(script: Script) -> None:
        assert script.welcome()[9] == [[1, 7, "finished"]]
        ack = script.read()
        assert ack[2:5] == [[1, 7], b"x", 3]
        script.send(messages.ANSWER, ack[1])

    stage.play(first, second)
    assert link.open()
    link.answer(work.Ack((1, 7), b"x", 3))
    receive_until_closed(link)
    assert link.open()
    receive_until_closed(link)
    assert not link.owes


def test_answer_made_without_a_connection_is_sent_by_the_next(stage: Stage, link: Link) -> None:
    link.answer(work.Nack((1, 7), "error", "why"))

    def scene(script: Script) -> None:
        assert script.welcome()[9] == [[1, 7, "finished"]]
        assert script.read()[2:5] == [[1, 7], "error", "why"]

    stage.play(scene)
    assert link.open()


def test_answer_for_a_lost_token_is_dropped(stage: Stage, link: Link) -> None:
    link.answer(work.Ack((1, 7)))
    link.answer(work.Ack((1, 8)))

    def scene(script: Script) -> None:
        script.welcome(lost=[[1, 7]])
        assert script.read()[2] == [1, 8]

    stage.play(scene)
    assert link.open()


def test_unstarted_job_is_named_in_hello_and_given_back_by_it(stage: Stage, link: Link) -> None:
    def first(script: Script) -> None:
        script.welcome()
        send_job(script, 7)

    def second(script: Script) -> None:
        assert script.welcome()[9] == [[1, 7, "unstarted"]]

    stage.play(first, second)
    assert link.open()
    receive_until_closed(link)
    assert len(link.jobs) == 1
    assert link.open()
    assert not link.jobs


def test_unstarted_job_stays_when_hello_was_not_answered(stage: Stage, link: Link) -> None:
    def first(script: Script) -> None:
        script.welcome()
        send_job(script, 7)

    stage.play(first, lambda script: None)
    assert link.open()
    receive_until_closed(link)
    assert not link.open()
    assert list(link.jobs) == [a_job(7)]


def test_running_token_is_named_in_hello(stage: Stage, link: Link) -> None:
    def scene(script: Script) -> None:
        assert script.welcome()[9] == [[1, 7, "running"]]

    stage.play(scene)
    assert link.open([(1, 7)])


def only_welcome(script: Script) -> None:
    script.welcome()


def refusing(code: str) -> Scene:
    def scene(script: Script) -> None:
        hello = script.read()
        script.send(messages.ERROR, hello[1], code, "no", {})

    return scene


@pytest.mark.parametrize("code", ["forbidden", "version_mismatch", "bad_message"])
def test_refused_hello_says_why(stage: Stage, link: Link, code: str) -> None:
    stage.play(refusing(code))
    with pytest.raises(HelloRefusedError, match=code):
        link.open()
    assert not link.is_open


@pytest.mark.parametrize("code", ["shutting_down", "too_many_connections", "internal"])
def test_refusal_that_will_pass_is_worth_another_try(stage: Stage, link: Link, code: str) -> None:
    stage.play(refusing(code), only_welcome)
    assert not link.open()
    assert link.open()


def test_lease_lost_ends_an_answer_for_good(stage: Stage, link: Link) -> None:
    def scene(script: Script) -> None:
        script.welcome()
        script.send(messages.ERROR, script.read()[1], "lease_lost", "gone", {})

    stage.play(scene)
    assert link.open()
    link.answer(work.Ack((1, 7)))
    receive_until_closed(link)
    assert not link.owes


def test_answer_the_broker_will_not_have_becomes_a_release(stage: Stage, link: Link) -> None:
    def scene(script: Script) -> None:
        script.welcome()
        script.send(messages.ERROR, script.read()[1], "payload_too_large", "no", {})
        release = script.read()
        assert (release[0], release[2:]) == (RELEASE_OP, [[1, 7], "released"])
        script.send(messages.ANSWER, release[1])

    stage.play(scene)
    assert link.open()
    link.answer(work.Ack((1, 7)))
    receive_until_closed(link)
    assert not link.owes


@pytest.mark.parametrize(
    "data", [b"\x00\x00\x00\x01\xc1", b"\x00\x00\x00\x00", b"\xff" * 8, codec.encode([JOB_OP, 0, 1])]
)
def test_bytes_that_are_no_protocol_close_the_link(stage: Stage, link: Link, data: bytes) -> None:
    def scene(script: Script) -> None:
        script.welcome()
        script.read()  # so that the bytes do not come together with the welcome
        script.socket.sendall(data)
        assert script.socket.recv(1) == b""

    stage.play(scene)
    assert link.open()
    link.answer(work.Ack((1, 7)))
    link.receive()
    assert not link.is_open


def test_fields_of_a_later_release_are_ignored(stage: Stage, link: Link) -> None:
    def scene(script: Script) -> None:
        hello = script.read()
        script.send(messages.ANSWER, hello[1], *WELCOME, "new", "fields")
        script.send(JOB_OP, 0, *a_job(7), "new")
        script.send(99, 0, "a new push")

    stage.play(scene)
    assert link.open()
    receive_until_closed(link)
    assert list(link.jobs) == [a_job(7)]


def test_closed_peer_is_seen_without_reading(stage: Stage, link: Link) -> None:
    stage.play(only_welcome)
    assert link.open()
    stage.close()
    assert link.is_open
    assert link.is_dead()


def test_answer_outlives_a_handler_that_closed_the_descriptor(stage: Stage, link: Link) -> None:
    def confirm(script: Script) -> None:
        hello = script.welcome()
        assert hello[9] == [[1, 7, "finished"]]
        ack = script.read()
        script.send(messages.ANSWER, ack[1])

    stage.play(only_welcome, confirm)
    assert link.open()
    os.close(link.fileno())
    link.answer(work.Ack([1, 7]))
    assert not link.is_open and link.owes
    assert link.open()
    receive_until_closed(link)
    assert not link.owes


# --- what nobody answers ----------------------------------------------------------------------------------


PROGRESS = work.Progress([1, 7], 40, 100, "x" * 256)


def test_what_is_said_arrives_and_is_owed_no_answer(stage: Stage, link: Link) -> None:
    seen: list[Any] = []

    def scene(script: Script) -> None:
        script.welcome()
        seen.extend(script.read())
        script.send(messages.ERROR, seen[1], "lease_lost", "not yours", {})

    stage.play(scene)
    assert link.open()
    link.say(PROGRESS)
    assert not link.owes
    receive_until_closed(link)
    assert (seen[0], seen[2:]) == (work.OPS[work.Progress][0], list(PROGRESS))


def test_saying_never_waits_for_a_broker_that_does_not_read_and_never_cuts_a_frame(
    stage: Stage, link: Link
) -> None:
    has_spoken = threading.Event()
    read: list[int] = []

    def scene(script: Script) -> None:
        script.welcome()
        has_spoken.wait(10)
        while (frame := script.read())[0] != ACK_OP:
            read.append(frame[2][1])

    stage.play(scene)
    assert link.open()
    for counter in range(20_000):
        link.say(PROGRESS._replace(token=[1, counter]))
    has_spoken.set()
    link.answer(work.Ack([1, 7]))
    receive_until_closed(link)
    assert 0 < len(read) < 20_000
    assert read == list(range(len(read)))


def test_saying_without_a_connection_says_nothing(link: Link) -> None:
    link.say(PROGRESS)
    assert not link.is_open


def test_nothing_gets_into_the_middle_of_an_unfinished_frame(stage: Stage, link: Link) -> None:
    ops: list[int] = []

    def scene(script: Script) -> None:
        script.welcome()
        ops.append(script.read()[0])

    stage.play(scene)
    assert link.open()
    link.unsent = b"the rest of a frame"
    link.say(PROGRESS)
    link.answer(work.Ack([1, 7]))
    receive_until_closed(link)
    assert ops == [ACK_OP]


# --- asking ---------------------------------------------------------------------------------------------

OUTPUT = work.Output([1, 7], 1, 0, b"said")
OUTPUT_OP = work.OPS[work.Output][0]
STREAM_OP = work.OPS[work.Stream][0]


def test_answer_to_a_question_comes_with_its_fields(stage: Stage, link: Link) -> None:
    def scene(script: Script) -> None:
        script.welcome()
        op, number, *fields = script.read()
        assert (op, fields) == (OUTPUT_OP, [[1, 7], 1, 0, b"said"])
        script.send(messages.ANSWER, number, True)

    stage.play(scene)
    assert link.open()
    answers: list[Any] = []
    link.ask(OUTPUT, answers.append)
    receive_until_closed(link)
    assert answers == [[True]]


def test_refused_question_is_answered_with_nothing(stage: Stage, link: Link) -> None:
    def scene(script: Script) -> None:
        script.welcome()
        script.send(messages.ERROR, script.read()[1], "lease_lost", "no", {})

    stage.play(scene)
    assert link.open()
    answers: list[Any] = []
    link.ask(OUTPUT, answers.append)
    receive_until_closed(link)
    assert answers == [None]


def test_question_without_a_welcome_is_not_asked(stage: Stage, link: Link) -> None:
    stage.play(only_welcome)
    answers: list[Any] = []
    link.ask(OUTPUT, answers.append)
    assert link.begin()
    link.ask(OUTPUT, answers.append)
    receive_until_closed(link)
    assert answers == []


def test_whoever_follows_is_made_known(stage: Stage, link: Link) -> None:
    def scene(script: Script) -> None:
        script.welcome()
        script.send(STREAM_OP, 0, [1, 7], "keep")

    stage.play(scene)
    told: list[tuple[tuple[int, int], str]] = []
    link.streamed = lambda token, policy: told.append((token, policy))
    assert link.open()
    receive_until_closed(link)
    assert told == [((1, 7), "keep")]
