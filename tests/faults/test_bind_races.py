"""At no moment, under no umask, does the socket let anybody in who is not to come in."""

import pytest
from support.faults import bind_races
from support.faults.broken.wide_socket import WideSocket

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(60),
    pytest.mark.skipif(bool(bind_races.needs()), reason=bind_races.needs()),
]

BINDS = 300


def test_socket_is_closed_to_another_user_at_every_moment(seed: int) -> None:
    tally = bind_races.run(seed, BINDS)
    assert tally.violations == []
    assert tally.counts["binds"] == BINDS
    assert tally.counts["seen"] > BINDS
    assert tally.counts["tries"] > tally.counts["seen"]


def test_mode_that_is_set_after_the_bind_is_found_out(seed: int) -> None:
    text = "\n".join(bind_races.run_with(WideSocket, seed, 20).violations)
    assert "ECONNREFUSED" in text
    assert "the socket had mode" in text
