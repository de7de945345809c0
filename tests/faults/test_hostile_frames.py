"""Hostile frames and lines: each is refused by its name, and nobody else sees a difference."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from support.faults import hostile_frames
from support.faults.attack import FRAMES_IN_GROUP
from support.faults.broken import lax_codec
from support.proof.harness import Tally

from stoker.proto import codec
from stoker.proto.messages import Enqueue
from stoker.proto.ops import BY_MESSAGE

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]

IN_PROCESS = 100_000
LIVE = 3_000
FEW = 4_000
SOME = 10_000
TRIES = 8


def assert_attacked(tally: Tally, frames: int) -> None:
    assert tally.violations == []
    assert tally.counts["frames"] >= frames
    assert tally.counts["refused"] > frames // 3
    assert tally.counts["honest"] >= 4 * (frames // FRAMES_IN_GROUP // 2)


def test_broker_stands_hostile_frames(seed: int) -> None:
    assert_attacked(hostile_frames.run_in_process(seed, IN_PROCESS), IN_PROCESS)


def test_daemon_stands_hostile_frames(seed: int) -> None:
    assert_attacked(hostile_frames.run_live(seed, LIVE), LIVE)


# --- positive controls -----------------------------------------------------------------------------------


@pytest.fixture(autouse=True)
def clean_hoard() -> Iterator[None]:
    yield
    lax_codec.forget()


@pytest.mark.parametrize(
    ("decode", "frames", "found"),
    [
        (lax_codec.without_limits, FEW, ("list of", "crowded")),
        (lax_codec.without_duplicates, FEW, ("duplicate key", "key ")),
        (lax_codec.that_raises, FEW, ("escaped",)),
        (lax_codec.that_hoards, SOME, ("memory grew",)),
    ],
)
def test_lax_decoder_is_found_out(
    seed: int,
    monkeypatch: pytest.MonkeyPatch,
    decode: Callable[..., list[Any]],
    frames: int,
    found: tuple[str, ...],
) -> None:
    monkeypatch.setattr(codec, "decode", decode)
    # What shows it is drawn at random: few frames may not have it, many have.
    tallies = (hostile_frames.run_in_process(seed + more, frames) for more in range(TRIES))
    assert any(word in violation for tally in tallies for violation in tally.violations for word in found)


def lax(accepts: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: accepts(1 if value is True else value)


def test_rule_that_takes_true_for_a_number_is_found_out(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    op = BY_MESSAGE[Enqueue]
    monkeypatch.setattr(op, "checks", tuple((lax(accepts), default) for accepts, default in op.checks))
    tallies = (hostile_frames.run_in_process(seed + more, SOME) for more in range(TRIES))
    assert any("misfit of Enqueue" in violation for tally in tallies for violation in tally.violations)
