"""What several test modules share: golden files, and how properties are tried."""

import logging
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# How long an example takes depends on what else the machine does.
settings.register_profile("untimed", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("untimed")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-goldens", action="store_true", help="write what is produced instead of comparing"
    )
    parser.addoption("--crashes", type=int, default=5, help="how often the crash test kills the exporter")


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[Path, str], None]:
    """Compares a text with a golden file; look at the diff before you commit an update."""

    def compare(path: Path, text: str) -> None:
        if request.config.getoption("--update-goldens"):
            path.write_text(text)
        assert text == path.read_text(), f"differs from {path}; run pytest --update-goldens and read the diff"

    return compare


@pytest.fixture(autouse=True)
def log_level() -> Iterator[None]:
    """A command run in this process sets the level for good, and later tests would not see warnings."""
    root = logging.getLogger()
    before = root.level
    yield
    root.setLevel(before)
