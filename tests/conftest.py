"""What all tests across languages share: the option for the provider, and the helpers' path."""

from __future__ import annotations

import itertools
import os
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

# With --import-mode=importlib nothing else makes `support` importable.
sys.path.insert(0, str(Path(__file__).parent))

from runner import archives
from support.session import STATEMARK_PROVIDER

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from support.brokers import Brokers

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


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Brokers]:
    """One node of Kafka for all tests of this process that ask for it."""
    from support.brokers import Brokers

    with Brokers(tmp_path_factory.mktemp("kafka")) as broker:
        yield broker


_TOPICS = itertools.count(1)


@pytest.fixture
def topic(broker: Brokers) -> Callable[..., str]:
    """Create a topic that no other test has, as `topics.create` does, and return its name."""
    from support import topics

    def create(**options: object) -> str:
        name = f"topic-{next(_TOPICS)}"
        topics.create(broker.bootstrap, name, **options)
        return name

    return create
