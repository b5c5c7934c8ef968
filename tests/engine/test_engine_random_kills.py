"""A short form of the campaign in ``benchmarks/random_kills.py``."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest


@pytest.fixture(scope="module")
def random_kills() -> ModuleType:
    path = Path(__file__).parents[2] / "benchmarks" / "random_kills.py"
    spec = importlib.util.spec_from_file_location("random_kills", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["random_kills"] = module
    spec.loader.exec_module(module)
    return module


def test_ten_rounds_of_random_kills_leave_no_process_port_or_lock(random_kills: ModuleType) -> None:
    rounds = random_kills.campaign(10, seed=7)
    assert [one for one in rounds if not one.clean] == []
    assert "processes left               0" in random_kills.summary(rounds)
