"""Fixtures and options for every test: seeds, hypothesis profiles, short directories for sockets.

Nothing here knows stoker. Builders, fakes and peers live in `tests/support/`, which is on the path
so that tests say `from support.waiting import wait_until`.
"""

import os
import random
import shutil
import signal
import sys
import tempfile
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

sys.path.insert(0, str(Path(__file__).parent))

SEED_VARIABLE = "SEED_OF_TESTS"
"""Set for the processes among which a run shares its tests out."""

_SLOW_MACHINE = [HealthCheck.too_slow]

# On a shared machine a deadline for one example measures the neighbours, so there is none: whole
# tests have a time limit instead.
settings.register_profile(
    "fast",
    max_examples=40,
    deadline=None,
    suppress_health_check=_SLOW_MACHINE,
    derandomize="CI" in os.environ,
)
settings.register_profile("thorough", max_examples=2000, deadline=None, suppress_health_check=_SLOW_MACHINE)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "fast"))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--seed",
        type=int,
        default=None,
        help="replay random tests with this seed (default: a new one each run)",
    )
    parser.addoption(
        "--rounds", type=int, default=10, help="how often tests with random kills repeat them (default: 10)"
    )


def pytest_configure(config: pytest.Config) -> None:
    # A shell starts what it puts into the background with SIGINT ignored, and every program started here
    # would inherit that; tests of Ctrl-C need it as a terminal leaves it.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    # What this machine's daemons are told must not reach those of the tests.
    os.environ["STOKER_CONFIG"] = os.devnull
    if config.getoption("--seed") is None:
        config.option.seed = _seed_of_run(is_part=hasattr(config, "workerinput"))


def _seed_of_run(*, is_part: bool) -> int:
    """A new seed; in a process that runs a part of the tests, the one of the whole run."""
    if not is_part:
        os.environ[SEED_VARIABLE] = str(random.SystemRandom().randrange(2**32))
    return int(os.environ[SEED_VARIABLE])


def pytest_report_header(config: pytest.Config) -> str:
    return f"seed: {config.getoption('--seed')}"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A failed test that drew on the seed says how to run it again."""
    report = yield
    if report.failed and "seed" in getattr(item, "fixturenames", ()):
        again = f"pytest '{item.nodeid}' --seed {item.config.getoption('--seed')}"
        report.sections.append(("replay", again))
    return report


@pytest.fixture
def seed(request: pytest.FixtureRequest) -> int:
    """The run's seed: everything random in a test is to come from `random.Random(seed)`."""
    value = request.config.getoption("--seed")
    assert isinstance(value, int)
    return value


@pytest.fixture
def short_directory() -> Iterator[Path]:
    """A private directory with a short name: pytest's own are too long for the 107 bytes of a socket path."""
    directory = Path(tempfile.mkdtemp(prefix="stk-", dir="/tmp"))
    yield directory
    shutil.rmtree(directory, ignore_errors=True)


@pytest.fixture
def socket_path(short_directory: Path) -> str:
    """Where a test's broker may listen. Nothing is there yet."""
    return str(short_directory / "broker.sock")
