"""The last line of `make faults`: `N passed, 0 failed`, also where pytest would say only the first half.

A plugin of pytest: `-p support.proof.verdict`.
"""

import pytest


class Verdict:
    """Counts what the reporter counted, once everything else has been said."""

    def __init__(self) -> None:
        self._passed: set[str] = set()
        self._failed: set[str] = set()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """One that fails in its beginning or end has failed, whatever its call did."""
        if report.failed:
            self._failed.add(report.nodeid)
        elif report.when == "call" and report.passed:
            self._passed.add(report.nodeid)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """A file that cannot be read is a failure too."""
        if report.failed:
            self._failed.add(report.nodeid)

    @pytest.hookimpl(trylast=True)
    def pytest_unconfigure(self) -> None:
        """After the reporter's own last line."""
        print(f"{len(self._passed - self._failed)} passed, {len(self._failed)} failed", flush=True)


def pytest_configure(config: pytest.Config) -> None:
    """Join in, but not in the processes that run a part of the tests each."""
    if hasattr(config, "workerinput"):
        return
    config.pluginmanager.register(Verdict(), "verdict")
