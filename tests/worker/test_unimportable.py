"""An app that does not import: no frames but its own, and advice where its name is wrong."""

import sys
from pathlib import Path

import pytest

from stoker.worker.unimportable import failure_of
from stoker.worker.zygote import load


def report_of_loading(target: str) -> str:
    try:
        load(target)
    except Exception as error:  # noqa: BLE001 - whichever it is, it is what is shown
        assert error.__traceback__ is not None
        # Not from here: a zygote has no such frame.
        return failure_of(target, error.with_traceback(error.__traceback__.tb_next)).report
    raise AssertionError(f"{target} was loaded")


@pytest.fixture(autouse=True)
def modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("target", ["no_such_module:app", "no_such_module.deeper:app"])
def test_module_that_is_not_there_names_the_places_and_has_no_traceback(target: str, modules: Path) -> None:
    first, second = report_of_loading(target).splitlines()
    assert first.startswith("ModuleNotFoundError: No module named 'no_such_module'")
    assert f"looked up in {modules}," in second


def test_name_of_a_file_is_corrected(modules: Path) -> None:
    (modules / "unimportable_a.py").write_text("")
    assert "not of its file: unimportable_a:app" in report_of_loading("unimportable_a.py:app")


@pytest.mark.parametrize("name", ["nope", "number"])
def test_name_that_is_no_app_has_advice_and_no_traceback(name: str, modules: Path) -> None:
    (modules / "unimportable_b.py").write_text("number = 7")
    lines = report_of_loading(f"unimportable_b:{name}").splitlines()
    assert "write APP as module:name" in lines[1]
    assert len(lines) == 2


def test_syntax_error_shows_its_line_and_no_frame_of_stoker(modules: Path) -> None:
    (modules / "unimportable_c.py").write_text("x = 1\ndef broken(:\n")
    report = report_of_loading("unimportable_c:app")
    assert 'unimportable_c.py", line 2' in report
    assert "zygote.py" not in report


def test_traceback_of_an_app_begins_in_its_own_code(modules: Path) -> None:
    (modules / "unimportable_d.py").write_text("import no_such_module\n")
    report = report_of_loading("unimportable_d:app")
    assert "looked up" not in report
    (frame,) = [line for line in report.splitlines() if "File " in line]
    assert 'unimportable_d.py", line 1' in frame
