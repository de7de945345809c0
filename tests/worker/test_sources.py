"""The app's own files: which they are, and a digest that follows what they hold."""

import os
import sys
from pathlib import Path
from types import ModuleType

import pytest

from stoker.worker import sources


def own(monkeypatch: pytest.MonkeyPatch, name: str, file: object) -> bool:
    """Whether a module of this name and file counts as one of the app `shop.tasks:app`."""
    module = ModuleType(name)
    module.__dict__["__file__"] = file
    monkeypatch.setitem(sys.modules, name, module)
    return name in sources.modules("shop.tasks:app")


@pytest.mark.parametrize(
    ("name", "file", "is_own"),
    [
        ("tasks", "/srv/app/tasks.py", True),
        ("requests", "/srv/venv/lib/python3.11/site-packages/requests.py", False),
        ("gi", "/usr/lib/python3/dist-packages/gi.py", False),
        ("shop.mail", "/srv/venv/lib/python3.11/site-packages/shop/mail.py", True),
        ("shopping", "/srv/venv/lib/python3.11/site-packages/shopping.py", False),
        ("a_module_without_file", None, False),
        ("odd", 7, False),
    ],
)
def test_own_is_what_was_not_installed_and_the_package_of_the_app(
    monkeypatch: pytest.MonkeyPatch, name: str, file: object, is_own: bool
) -> None:
    assert own(monkeypatch, name, file) is is_own


def test_neither_the_standard_library_nor_stoker_is_own() -> None:
    assert not sources.is_own(os.__file__)
    assert not sources.is_own(sources.__file__)
    assert not sources.is_own("<frozen importlib._bootstrap>")


def test_what_only_stands_in_for_a_module_is_not_touched(monkeypatch: pytest.MonkeyPatch) -> None:
    class Lazy(ModuleType):
        def __getattr__(self, name: str) -> object:
            raise AssertionError(name)

    monkeypatch.setitem(sys.modules, "lazy", Lazy("lazy"))
    monkeypatch.setitem(sys.modules, "no_module", None)
    assert not {"lazy", "no_module"} & set(sources.modules("tasks:app"))


def test_digest_follows_contents_and_names_and_not_the_place(tmp_path: Path) -> None:
    def digest(directory: str, text: str, name: str = "tasks") -> str:
        path = tmp_path / directory / "tasks.py"
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        return sources.digest([(name, str(path))])

    assert digest("a", "one") == digest("b", "one")
    assert len({digest("a", "one"), digest("a", "two"), digest("a", "one", "other")}) == 3
    assert len(digest("a", "one")) == 8


def test_file_that_is_gone_still_counts_by_its_name(tmp_path: Path) -> None:
    assert sources.digest([("tasks", str(tmp_path / "none"))]) != sources.digest([])


def raised(directory: Path, monkeypatch: pytest.MonkeyPatch, **files: str) -> BaseException:
    """What importing `broken` raises, with these modules on the path."""
    monkeypatch.setattr(sys, "path", [str(directory), *sys.path])
    for name, text in files.items():
        (directory / f"{name}.py").write_text(text)
    with pytest.raises(BaseException) as caught:
        __import__(next(iter(files)))
    return caught.value


def test_failed_import_is_about_the_files_of_its_frames(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    error = raised(tmp_path, monkeypatch, broken_a="import broken_b", broken_b="raise ValueError")
    names = {Path(file).name for file in sources.files_of(error)}
    assert {"broken_a.py", "broken_b.py"} <= names


def test_syntax_error_is_about_its_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    error = raised(tmp_path, monkeypatch, broken_c="import broken_d", broken_d="def x(:")
    assert str(tmp_path / "broken_d.py") in sources.files_of(error)


def test_missing_module_is_about_the_file_that_would_be_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    error = raised(tmp_path, monkeypatch, broken_e="import not_yet.written")
    found = sources.files_of(error)
    assert {str(tmp_path / "not_yet.py"), str(tmp_path / "not_yet" / "__init__.py")} <= set(found)
