"""The limit of open files, as a broker that is started from here would have it."""

import resource

from stoker.doctor.descriptors import check_descriptors, descriptors_max
from stoker.doctor.finding import Level
from stoker.proto import limits


def test_enough_open_files_are_no_finding() -> None:
    assert list(check_descriptors(limits.BROKER_DESCRIPTORS_MIN)) == []
    assert descriptors_max() == resource.getrlimit(resource.RLIMIT_NOFILE)[1]


def test_too_few_open_files_are_an_error() -> None:
    (finding,) = check_descriptors(limits.BROKER_DESCRIPTORS_MIN - 1)
    assert finding.level is Level.ERROR
    assert "is 63 here, and a broker needs 64" in finding.what and "LimitNOFILE=" in finding.advice
