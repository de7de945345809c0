"""The core against a naive model: any sequence of requests, deaths, waits and restarts."""

import pytest
from hypothesis import settings
from support.core_against_model import CoreAgainstModel

pytestmark = pytest.mark.slow

CoreAgainstModel.TestCase.settings = settings(stateful_step_count=50)
TestCoreAgainstModel = CoreAgainstModel.TestCase
