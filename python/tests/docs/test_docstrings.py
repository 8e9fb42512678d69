"""Every example in a docstring runs, and every public name has a docstring.

An example opts out in one of two ways: with ``# doctest: +SKIP`` where it needs a running
session, or by not being written as a prompt.
"""

from __future__ import annotations

import doctest
import importlib
import pkgutil

import pytest

import statemark

MODULES = sorted(
    f"statemark.{module.name}"
    for module in pkgutil.iter_modules(statemark.__path__)
    if module.name != "__main__"
)
# Where an example must be: what users call.
EXEMPLIFIED = ("configure", "conf", "IsolationLevel", "MetricsListener", "StatemarkError")


@pytest.mark.parametrize("name", ["statemark", *MODULES])
def test_examples_run(name: str, bundled: str) -> None:
    module = importlib.import_module(name)
    failed, _ = doctest.testmod(module, optionflags=doctest.ELLIPSIS)
    assert failed == 0


@pytest.mark.parametrize("name", EXEMPLIFIED)
def test_what_users_call_has_an_example(name: str) -> None:
    found = doctest.DocTestFinder(recurse=False).find(getattr(statemark, name), name)
    assert sum(len(test.examples) for test in found) > 0
