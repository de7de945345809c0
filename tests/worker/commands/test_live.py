"""What a program says on its way to followers: in order, bounded, and kept until it has been taken."""

import pytest
import trio
from support.followed import TOKEN, Audience
from support.waiting import wait_at_rest

from stoker.proto import limits, work
from stoker.proto.messages import STDERR, STDOUT
from stoker.proto.work import BLOCK, KEEP
from stoker.worker.commands.live import FOLLOWED_BYTES, LINGER_S, UNFOLLOWED_BYTES

CHUNK = limits.OUTPUT_CHUNK_BYTES_MAX


def numbered(count: int) -> bytes:
    """So many bytes, each 8 of them different."""
    return b"".join(b"%07d\n" % number for number in range(count // 8))


def test_nothing_is_sent_while_nobody_follows() -> None:
    audience = Audience()
    audience.live.add(STDOUT, b"said")
    assert audience.waiting == []
    assert audience.live.tail.data == b"said"


def test_who_begins_to_follow_gets_what_was_said_last_and_what_comes() -> None:
    audience = Audience()
    audience.live.add(STDOUT, b"before, ")
    audience.live.follow(KEEP)
    audience.live.add(STDOUT, b"after")
    audience.take_all()
    assert audience.taken[STDOUT] == b"before, after"


def test_job_may_be_followed_from_its_beginning() -> None:
    audience = Audience(KEEP)
    audience.live.add(STDERR, b"said")
    assert [output for output, _ in audience.waiting] == [work.Output(list(TOKEN), STDERR, 0, b"said")]


def test_one_chunk_of_each_stream_is_on_its_way() -> None:
    audience = Audience(KEEP)
    for text in (b"one", b"two", b"three"):
        audience.live.add(STDOUT, text)
        audience.live.add(STDERR, text)
    assert [(output.stream, output.data) for output, _ in audience.waiting] == [
        (STDOUT, b"one"),
        (STDERR, b"one"),
    ]
    audience.take()
    assert {output.data for output, _ in audience.waiting} == {b"twothree"}


def test_chunk_is_no_longer_than_a_message_may_hold() -> None:
    audience = Audience(BLOCK)
    said = numbered(3 * CHUNK)
    audience.live.add(STDOUT, said)
    audience.take_all()
    assert audience.taken[STDOUT] == said
    assert len(audience.offsets) == 3


@pytest.mark.parametrize(("policy", "kept"), [(None, UNFOLLOWED_BYTES), (KEEP, FOLLOWED_BYTES)])
def test_oldest_is_dropped_and_the_offset_says_so(policy: str | None, kept: int) -> None:
    audience = Audience(policy)
    said = numbered(10 * FOLLOWED_BYTES)
    for at in range(0, len(said), CHUNK // 2):
        audience.live.add(STDOUT, said[at : at + CHUNK // 2])
        assert not audience.live.is_full(STDOUT)
    audience.live.follow(KEEP)
    audience.take_all()
    taken = audience.taken[STDOUT]
    assert taken[-kept:] == said[-kept:]
    assert len(taken) <= 2 * kept + CHUNK
    *_, (_, last) = audience.offsets
    assert said[last:] == taken[last - len(said) :], "offsets count what was dropped"


def test_stream_is_full_until_there_is_room() -> None:
    audience = Audience(BLOCK)
    told: list[bool] = []
    audience.live.has_room = lambda: told.append(audience.live.is_full(STDOUT))
    audience.live.add(STDOUT, bytes(FOLLOWED_BYTES - 1))
    assert not audience.live.is_full(STDOUT)
    audience.live.add(STDOUT, b"!")
    assert audience.live.is_full(STDOUT) and not audience.live.is_full(STDERR)
    audience.take()
    assert told[-1] is False


def test_nothing_is_lost_of_what_goes_beyond_what_fits() -> None:
    audience = Audience(BLOCK)
    said = numbered(5 * FOLLOWED_BYTES)
    audience.live.add(STDOUT, said)
    audience.take_all()
    assert audience.taken[STDOUT] == said


def test_program_that_is_being_ended_waits_for_nobody() -> None:
    audience = Audience(BLOCK)
    audience.live.add(STDOUT, bytes(FOLLOWED_BYTES))
    audience.live.end_soon()
    assert not audience.live.is_full(STDOUT)


# --- followers come and go ------------------------------------------------------------------------------


def test_nothing_is_sent_when_nobody_follows_any_more() -> None:
    audience = Audience(BLOCK)
    audience.live.add(STDOUT, bytes(FOLLOWED_BYTES))
    audience.leave()
    assert not audience.live.is_full(STDOUT)
    audience.live.add(STDOUT, b"more")
    assert audience.waiting == []


def test_who_comes_after_the_others_have_left_gets_what_they_had_as_well() -> None:
    audience = Audience(KEEP)
    audience.live.add(STDOUT, b"one, ")
    audience.take()
    audience.live.add(STDOUT, b"two")
    audience.leave()
    audience.taken[STDOUT] = b""
    audience.live.follow(KEEP)
    audience.take_all()
    assert audience.taken[STDOUT] == b"one, two"


def test_what_was_on_its_way_is_sent_again_on_the_next_connection() -> None:
    audience = Audience(KEEP)
    audience.live.add(STDOUT, b"one")
    audience.lose()
    audience.take_all()
    assert audience.taken[STDOUT] == b"one"


def test_after_a_loss_a_program_waits_until_its_followers_are_back() -> None:
    audience = Audience(BLOCK)
    audience.live.add(STDOUT, bytes(FOLLOWED_BYTES))
    audience.lose()
    assert audience.waiting == [] and audience.live.is_full(STDOUT)
    audience.live.follow(BLOCK)
    audience.take_all()
    assert audience.taken[STDOUT] == bytes(FOLLOWED_BYTES)
    (give_up,) = audience.later
    audience.live.add(STDOUT, bytes(FOLLOWED_BYTES))
    give_up()
    assert audience.live.is_full(STDOUT), "they are back, so nothing is given up"


def test_broker_may_say_who_follows_before_the_connection_is_ready() -> None:
    audience = Audience(BLOCK)
    audience.live.add(STDOUT, b"one")
    audience.waiting.clear()
    audience.live.disconnected()
    audience.live.follow(BLOCK)
    audience.live.connected()
    audience.take_all()
    assert audience.taken[STDOUT] == b"one"


def test_others_who_come_back_first_do_not_let_the_program_run_on() -> None:
    audience = Audience(BLOCK)
    audience.live.add(STDOUT, bytes(FOLLOWED_BYTES))
    audience.lose()
    audience.live.follow(KEEP)
    assert audience.waiting == [] and audience.live.is_full(STDOUT)
    audience.live.follow(BLOCK)
    audience.take_all()
    assert audience.taken[STDOUT] == bytes(FOLLOWED_BYTES)


def test_others_get_it_when_those_who_wanted_all_do_not_come_back() -> None:
    audience = Audience(BLOCK)
    audience.live.add(STDOUT, b"one")
    audience.lose()
    audience.live.follow(KEEP)
    (give_up,) = audience.later
    give_up()
    audience.take_all()
    assert audience.taken[STDOUT] == b"one"


def test_nothing_is_sent_into_a_connection_that_is_not_ready() -> None:
    audience = Audience(KEEP)
    audience.live.disconnected()
    audience.live.add(STDOUT, b"one")
    assert audience.waiting == []
    audience.live.follow(KEEP)
    audience.live.connected()
    audience.take_all()
    assert audience.taken[STDOUT] == b"one"


def test_program_that_is_being_ended_is_read_again() -> None:
    audience = Audience(BLOCK)
    told: list[bool] = []
    audience.live.has_room = lambda: told.append(audience.live.is_full(STDOUT))
    audience.live.add(STDOUT, bytes(FOLLOWED_BYTES))
    told.clear()
    audience.live.end_soon()
    assert told == [False]


def test_time_to_come_back_is_that_of_the_last_loss() -> None:
    audience = Audience(BLOCK)
    audience.live.add(STDOUT, bytes(FOLLOWED_BYTES))
    audience.lose()
    audience.live.follow(BLOCK)
    audience.lose()
    first, last = audience.later
    first()
    assert audience.live.is_full(STDOUT)
    last()
    assert not audience.live.is_full(STDOUT)


def test_followers_that_do_not_come_back_are_not_waited_for() -> None:
    audience = Audience(BLOCK)
    audience.live.add(STDOUT, bytes(FOLLOWED_BYTES))
    audience.lose()
    (give_up,) = audience.later
    give_up()
    assert not audience.live.is_full(STDOUT)


# --- the end ----------------------------------------------------------------------------------------------


@pytest.mark.trio
async def test_end_waits_until_the_last_words_were_taken() -> None:
    audience = Audience(BLOCK)
    audience.live.add(STDOUT, b"last words")
    ended: list[bytes] = []

    async def end() -> None:
        await audience.live.finish()
        ended.append(audience.taken[STDOUT])

    async with trio.open_nursery() as nursery:
        nursery.start_soon(end)
        await wait_at_rest()
        assert ended == []
        audience.take()
    assert ended == [b"last words"]


@pytest.mark.trio
async def test_end_is_not_kept_waiting_by_those_who_take_what_they_get(
    autojump_clock: trio.testing.MockClock,
) -> None:
    audience = Audience(KEEP)
    audience.live.add(STDOUT, b"last words")
    begun = trio.current_time()
    await audience.live.finish()
    assert trio.current_time() - begun == pytest.approx(LINGER_S)


@pytest.mark.trio
async def test_end_does_not_wait_when_those_who_kept_it_have_left() -> None:
    audience = Audience(BLOCK)
    audience.live.add(STDOUT, b"last words")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(audience.live.finish)
        await wait_at_rest()
        audience.leave()


@pytest.mark.trio
async def test_end_does_not_wait_longer_than_it_may_and_says_what_is_lost(
    autojump_clock: trio.testing.MockClock,
) -> None:
    audience = Audience(BLOCK)
    audience.live.add(STDOUT, bytes(3 * CHUNK))
    audience.take()
    begun = trio.current_time()
    await audience.live.finish(5)
    assert trio.current_time() - begun == pytest.approx(5)
    assert audience.waiting[-1][0] == work.Output(list(TOKEN), STDOUT, 3 * CHUNK, b"")


@pytest.mark.trio
async def test_end_waits_for_nobody_if_nobody_follows() -> None:
    audience = Audience()
    audience.live.add(STDOUT, b"last words")
    with trio.fail_after(0):
        await audience.live.finish()
