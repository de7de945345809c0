"""Mistakes: one line each, and a word that was nearly right."""

from stoker.config.mistakes import SettingError, nearest


def test_error_has_all_lines() -> None:
    error = SettingError("a: x", "b: y")
    assert error.lines == ("a: x", "b: y")
    assert str(error) == "a: x\nb: y"


def test_nearest_word_is_named_also_with_dashes() -> None:
    known = ["done_kept", "dead_kept", "low_water"]
    assert nearest("done-kep", known) == "; did you mean done_kept?"
    assert nearest("lowwater", known) == "; did you mean low_water?"


def test_nothing_is_said_of_a_word_that_is_like_none() -> None:
    assert nearest("xyz", ["done_kept"]) == ""
