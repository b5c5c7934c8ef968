"""The suite that Optuna asks of every sampler, run for ours."""

from collections.abc import Callable

import pytest
from optuna.samplers import BaseSampler
from optuna.testing.pytest_samplers import BasicSamplerTestCase, MultiObjectiveSamplerTestCase, RelativeSamplerTestCase

from search_spaces.sampler import QuietlaneSampler


class TestQuietlaneSamplerFollowsOptuna(BasicSamplerTestCase, RelativeSamplerTestCase, MultiObjectiveSamplerTestCase):
    @pytest.fixture
    def sampler(self) -> Callable[[], BaseSampler]:
        return lambda: QuietlaneSampler(seed=0)
