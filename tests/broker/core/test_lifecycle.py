"""Every pair of state and command: where it leads, or that it cannot happen."""

import pytest

from stoker.broker.core.lifecycle import TRANSITIONS, Command, target
from stoker.proto.model import FINAL_STATES, State

LEGAL = {
    ("scheduled", "due"): "ready",
    ("scheduled", "expired"): "dead",
    ("scheduled", "cancelled"): "cancelled",
    ("ready", "granted"): "leased",
    ("ready", "expired"): "dead",
    ("ready", "cancelled"): "cancelled",
    ("leased", "acked"): "done",
    ("leased", "failed"): "scheduled",
    ("leased", "returned"): "ready",
    ("leased", "gave_up"): "dead",
    ("leased", "cancelled"): "cancelled",
    ("dead", "kicked"): "ready",
}
"""Written down once more by hand: a table that is compared with itself proves nothing."""


@pytest.mark.parametrize("command", Command)
@pytest.mark.parametrize("state", State)
def test_command_moves_the_job_or_cannot_happen(state: State, command: Command) -> None:
    expected = LEGAL.get((state.value, command.value))
    if expected is None:
        with pytest.raises(AssertionError, match=f"{command} in state {state}"):
            target(state, command)
    else:
        assert target(state, command) is State(expected)


def test_only_a_kick_leads_out_of_a_final_state() -> None:
    out = {(state, command) for state, command in TRANSITIONS if state in FINAL_STATES}
    assert out == {(State.DEAD, Command.KICKED)}
