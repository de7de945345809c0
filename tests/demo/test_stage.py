"""The demo's stage: which processes it may touch."""

import os

from stoker.demo.stage import ancestors


def test_ancestors_include_the_parent_and_the_first_process() -> None:
    assert {os.getppid()} <= ancestors(os.getpid())


def test_process_is_not_its_own_ancestor() -> None:
    assert os.getpid() not in ancestors(os.getpid())


def test_process_that_is_gone_has_none() -> None:
    assert ancestors(2**22 + 1) == set()
