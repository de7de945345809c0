"""What is shipped: one top level, every module, typed, and a command that starts."""

import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest
from support import sources

pytestmark = pytest.mark.slow


def run(*command: str | Path, cwd: Path) -> str:
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with the sdist, and the wheel that was built from the sdist."""
    out = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", out, sources.ROOT, cwd=out)
    return out


def wheel_of(built: Path) -> Path:
    (wheel,) = built.glob("*.whl")
    return wheel


def test_wheel_holds_one_package_and_its_metadata(built: Path) -> None:
    names = zipfile.ZipFile(wheel_of(built)).namelist()
    tops = {name.split("/")[0] for name in names}
    assert {top for top in tops if not top.endswith((".dist-info", ".data"))} == {"stoker"}


def test_wheel_holds_the_units_for_a_service_manager(built: Path) -> None:
    names = zipfile.ZipFile(wheel_of(built)).namelist()
    units = {Path(name).name for name in names if "/data/share/stoker/systemd/" in name}
    assert units == {path.name for path in (sources.ROOT / "contrib" / "systemd").iterdir()}


def test_wheel_holds_every_module_and_the_marker_of_types(built: Path) -> None:
    names = set(zipfile.ZipFile(wheel_of(built)).namelist())
    wanted = {f"stoker/{path.relative_to(sources.SRC)}" for path in sources.modules()} | {"stoker/py.typed"}
    assert wanted - names == set()


def test_wheel_carries_the_licence(built: Path) -> None:
    names = zipfile.ZipFile(wheel_of(built)).namelist()
    assert any(name.endswith("licenses/LICENSE") for name in names)


def test_sdist_holds_source_tests_and_docs(built: Path) -> None:
    (sdist,) = built.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        tops = {name.split("/")[1] for name in archive.getnames() if "/" in name}
    assert {"src", "tests", "docs", "examples", "benchmarks", "contrib", "LICENSE", "README.md"} <= tops


def test_installed_wheel_gives_the_command(built: Path, tmp_path: Path) -> None:
    venv = tmp_path / "venv"
    run(sys.executable, "-m", "venv", "--without-pip", venv, cwd=tmp_path)
    python = venv / "bin" / "python"
    pip = (sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "--no-deps", "--no-index")
    run(*pip, wheel_of(built), cwd=tmp_path)
    # The runtime dependencies come from the environment of this run. A .pth line adds its directory
    # without reading the .pth files in it, so the editable stoker there stays out.
    libraries = Path(pytest.__file__).parents[1]
    (site,) = venv.glob("lib/python3*/site-packages")
    (site / "libraries.pth").write_text(f"{libraries}\n")
    said = run(venv / "bin" / "stoker", "--help", cwd=tmp_path)
    assert "enqueue" in said
    assert str(site) in run(python, "-c", "import stoker; print(stoker.__file__)", cwd=tmp_path)
