"""Nonces of a pool's workers: random, and behind that which code the worker runs.

    0123456789abcdef-3-5d41402a      16 random digits, the generation of the code in its pool, its digest

A nonce is part of the worker's identity, and the journal keeps that with every attempt. So whatever ended
an attempt, in whichever life of the broker, its code is on record; and nothing is written for it that was
not written anyway. Workers of other libraries have nonces of other forms, which say nothing of code.
"""

RANDOM_BYTES = 8
DIGEST_LENGTH = 8

_DIGITS = frozenset("0123456789abcdef")


def code(generation: int, digest: str) -> str:
    """How the code of a generation is called: `3-5d41402a`."""
    return f"{generation}-{digest}"


def nonce(random: str, code: str) -> str:
    """The nonce of a worker that runs this code, from `RANDOM_BYTES` in hex."""
    return f"{random}-{code}"


def code_of(identity: str) -> str:
    """The code of a worker, by its identity as the journal writes it; empty where that does not say it."""
    parts = identity.rpartition("/")[2].split("-")
    if len(parts) != 3:
        return ""
    random, generation, digest = parts
    is_ours = len(random) == 2 * RANDOM_BYTES and len(digest) == DIGEST_LENGTH
    if is_ours and _DIGITS.issuperset(random + digest) and generation.isascii() and generation.isdigit():
        return f"{generation}-{digest}"
    return ""
