"""The machine of the tests of `statemark doctor`."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.doctor_world import World, make_world


@pytest.fixture
def world(tmp_path: Path, bundled: str, monkeypatch: pytest.MonkeyPatch) -> World:
    return make_world(tmp_path / "world", monkeypatch)
