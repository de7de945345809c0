"""The worst of several findings decides."""

from stoker.doctor.finding import Finding, Level, worst


def test_worst_of_nothing_is_that_nothing_is_wrong() -> None:
    assert worst([]) is Level.OK


def test_one_error_among_others_is_the_worst() -> None:
    levels = (Level.NOTE, Level.ERROR, Level.OK, Level.WARNING)
    assert worst(Finding(level, "", "") for level in levels) is Level.ERROR
