"""The payload cache: what stays, what goes, and that its size is always known."""

from support.journals import an_image

from stoker.broker.core.effects import Changes
from stoker.broker.payloads import OVERHEAD_BYTES, PayloadCache
from stoker.proto.model import State


def new_jobs(*numbers: int) -> Changes:
    return Changes(payloads=[(number, b"%4d" % number) for number in numbers])


def test_payload_leaves_when_it_is_taken() -> None:
    cache = PayloadCache(10_000)
    cache.note(new_jobs(1))
    assert cache.take([1]) == ({1: b"   1"}, [])
    assert cache.take([1]) == ({}, [1])
    assert cache.bytes == 0


def test_full_cache_keeps_the_first_because_they_run_first() -> None:
    cache = PayloadCache(2 * (4 + OVERHEAD_BYTES))
    cache.note(new_jobs(1, 2, 3))
    assert cache.take([1, 2, 3]) == ({1: b"   1", 2: b"   2"}, [3])


def test_payload_of_an_ended_job_is_dropped() -> None:
    cache = PayloadCache(10_000)
    cache.note(new_jobs(1, 2, 3))
    cache.note(Changes(images=[an_image(1, state=State.CANCELLED), an_image(2, state=State.SCHEDULED)]))
    cache.note(Changes(deleted=[(3, "job-3", b"", 0)]))
    assert cache.take([1, 2, 3]) == ({2: b"   2"}, [1, 3])


def test_empty_payloads_count_too() -> None:
    cache = PayloadCache(10 * OVERHEAD_BYTES)
    cache.note(Changes(payloads=[(number, b"") for number in range(100)]))
    assert len(cache) == 10
