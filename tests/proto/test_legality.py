"""The grid itself; `test_connection.py` plays every cell of it."""

import pytest

from stoker.proto.legality import AFTER, LEGAL, State, legal_ops
from stoker.proto.model import Role
from stoker.proto.ops import BY_NAME, OPS


def test_every_state_has_its_line() -> None:
    assert set(LEGAL) == set(State)
    assert set(AFTER) == set(Role)


def test_only_ops_of_the_table_are_named() -> None:
    assert set().union(*LEGAL.values()) <= set(BY_NAME)


def test_every_op_that_somebody_may_send_is_legal_somewhere() -> None:
    assert set().union(*LEGAL.values()) == {op.name for op in OPS if op.roles}


@pytest.mark.parametrize("state", [state for state in State if state is not State.ENDED])
def test_help_is_legal_everywhere_with_any_role(state: State) -> None:
    assert all(BY_NAME["help"] in legal_ops(state, frozenset({role})) for role in Role)


def test_without_a_role_nothing_is_legal() -> None:
    assert list(legal_ops(State.NEW, frozenset())) == []


def test_a_submitter_may_not_do_what_admins_do() -> None:
    names = {op.name for op in legal_ops(State.CLIENT, frozenset({Role.SUBMIT}))}
    assert "enqueue" in names
    assert not names & {"kick", "drop", "jobs", "pause", "resume", "drain", "snapshot"}
