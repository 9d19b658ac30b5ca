"""`pytest tests/golden --update-golden` writes the files anew; without it they must be equal."""

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="write the golden files of tests/golden anew")


@pytest.fixture
def update_golden(request: pytest.FixtureRequest) -> bool:
    """Whether to write instead of to compare. The option exists only where this folder was named."""
    return bool(request.config.getoption("--update-golden", default=False))
