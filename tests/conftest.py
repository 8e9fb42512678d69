"""What all tests across languages share: the option for the provider, and the helpers' path."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

import pytest

# With --import-mode=importlib nothing else makes `support` importable.
sys.path.insert(0, str(Path(__file__).parent))

from runner import archives
from support.session import STATEMARK_PROVIDER

os.environ.setdefault("SPARK_SUBMIT_OPTS", archives.SHORT_LIVED)
# Stores of a local master lie in the user's cache directory.
os.environ["XDG_CACHE_HOME"] = tempfile.mkdtemp(prefix="statemark-cache-")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--provider",
        default=STATEMARK_PROVIDER,
        help="class of the state store provider; Spark's own checks the tests themselves",
    )


@pytest.fixture(scope="session")
def provider(request: pytest.FixtureRequest) -> str:
    """Class name of the provider under test."""
    return str(request.config.getoption("--provider"))
