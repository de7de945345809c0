"""What a program writes comes through a slow function whole, in little memory."""

import pytest
from support.faults import program_streams

from stoker.worker.commands.filter import Policy

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]

MIB = 64


def test_all_of_it_comes_through_and_the_program_waits(seed: int) -> None:
    tally = program_streams.run(seed, MIB)
    assert tally.violations == []
    assert tally.counts["times seen waiting"] >= 2


def test_what_a_reader_drops_is_found_out(seed: int) -> None:
    # Less than is read at once: some of it is dropped whatever the pace.
    tally = program_streams.run_with(seed, MIB, Policy.KEEP, 4096)
    assert any("not what was written" in each for each in tally.violations), tally
