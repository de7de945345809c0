"""Seeds of the simulation: `--seed N` runs that one alone, else there are many, new each time."""

import pytest

SEEDS = 60
"""Of one plain run of the tests: well under 20 s."""

FAST_SEEDS = 3
"""Of them, those that also run before every commit."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "run_seed" in metafunc.fixturenames:
        first = metafunc.config.getoption("--seed")
        assert isinstance(first, int)
        asked = any(arg.startswith("--seed") for arg in metafunc.config.invocation_params.args)
        seeds = [pytest.param(first + n) for n in range(1 if asked else FAST_SEEDS)]
        if not asked:
            seeds += [pytest.param(first + n, marks=pytest.mark.slow) for n in range(FAST_SEEDS, SEEDS)]
        metafunc.parametrize("run_seed", seeds)
