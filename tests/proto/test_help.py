"""What `help` tells."""

import json

from stoker.proto.help import HELP_TEXT
from stoker.proto.model import Role
from stoker.proto.ops import OPS


def test_help_lists_every_op() -> None:
    assert list(HELP_TEXT.ops) == [op.name for op in OPS]


def test_help_says_what_each_field_holds_and_which_may_be_left_out() -> None:
    assert HELP_TEXT.ops["wait"] == {
        "number": 18,
        "roles": [Role.ADMIN, Role.SUBMIT],
        "fields": {
            "id": "1 to 128 characters of A-Z a-z 0-9 . _ : -",
            "timeout_ms": "an integer (ms) from 0 to 315360000000, or nothing (optional)",
        },
        "answer": ["id", "state", "outcome", "reason", "result", "attempt"],
    }


def test_pushes_have_no_answer() -> None:
    assert HELP_TEXT.ops["job"]["answer"] == []


def test_help_is_plain_data() -> None:
    assert json.loads(json.dumps(HELP_TEXT.ops)) == HELP_TEXT.ops
