"""What the kernel lacks is told, and what then happens instead."""

import os

import pytest

from stoker.doctor.finding import Level
from stoker.doctor.kernel import Features, check_kernel, features

ALL = Features("6.18", True, True, True, True, True)


def test_kernel_that_has_all_is_good() -> None:
    assert [(finding.level, finding.what) for finding in check_kernel(ALL)] == [
        (Level.OK, "Linux 6.18 has what stoker needs")
    ]


@pytest.mark.parametrize(
    ("found", "word"),
    [
        (ALL._replace(peer_pidfd=False), "SO_PEERPIDFD"),
        (ALL._replace(pass_rights=False), "SO_PASSRIGHTS"),
        (ALL._replace(cgroup_writable=False), "cgroup v2"),
        (ALL._replace(user_namespaces=False), "user namespaces"),
    ],
)
def test_what_stoker_can_do_without_is_a_note(found: Features, word: str) -> None:
    note, last = check_kernel(found)
    assert note.level is Level.NOTE and word in note.what
    assert last.level is Level.OK


def test_kernel_without_pidfds_is_an_error() -> None:
    (finding,) = check_kernel(ALL._replace(pidfd=False))
    assert finding.level is Level.ERROR


def test_features_of_this_kernel_are_tried() -> None:
    before = len(os.listdir("/proc/self/fd"))
    found = features()
    assert (found.release, found.pidfd) == (os.uname().release, True)
    assert len(os.listdir("/proc/self/fd")) == before
