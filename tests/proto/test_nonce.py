"""Nonces that say which code a worker runs."""

import pytest

from stoker.proto.nonce import code, code_of, nonce
from stoker.proto.rules import is_nonce

IDENTITY = "2c1f0e7e-8d1b-4a64-9a53-7d7f0d9b2a11/4026531836/77/123456/"
RANDOM = "0123456789abcdef"


def test_code_is_read_from_an_identity() -> None:
    assert code_of(IDENTITY + nonce(RANDOM, code(12, "5d41402a"))) == "12-5d41402a"


def test_nonce_with_code_is_one_by_the_rules_of_the_wire() -> None:
    assert is_nonce(nonce(RANDOM, code(10**15, "5d41402a")))


@pytest.mark.parametrize(
    "foreign",
    [
        RANDOM,
        "550e8400-e29b-41d4-a716-446655440000",
        "worker-3-host",
        f"{RANDOM}-x-5d41402a",
        f"{RANDOM}-\u0663-5d41402a",
        f"{RANDOM}-3-5d41402",
        f"{RANDOM}-3-5d41402A",
        f"{RANDOM}--5d41402a",
        "",
    ],
)
def test_nonce_of_another_form_says_nothing_of_code(foreign: str) -> None:
    assert code_of(IDENTITY + foreign) == ""


def test_what_has_no_identity_has_no_code() -> None:
    assert (code_of(""), code_of("connection/3/17")) == ("", "")
