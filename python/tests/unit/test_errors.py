from __future__ import annotations

import pickle
import re
import subprocess
import sys

import pytest

import statemark


def test_a_message_has_problem_reason_and_remedy() -> None:
    error = statemark.SettingsError("p 1", reason="r 2", remedy="m 3")
    assert str(error) == "p 1\n  reason: r 2\n  remedy: m 3"
    assert (error.problem, error.reason, error.remedy) == ("p 1", "r 2", "m 3")


@pytest.mark.parametrize(
    ("kind", "builtin"),
    [
        (statemark.SettingsError, ValueError),
        (statemark.MissingDependencyError, ImportError),
        (statemark.JarNotFoundError, FileNotFoundError),
        (statemark.SparkVersionError, Exception),
        (statemark.ConnectError, Exception),
        (statemark.SessionRunningError, Exception),
    ],
)
def test_every_error_is_ours_prints_alike_and_survives_pickling(
    kind: type[statemark.StatemarkError], builtin: type[Exception]
) -> None:
    error = kind("p", reason="r", remedy="m")
    assert isinstance(error, statemark.StatemarkError)
    assert isinstance(error, builtin)
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is kind
    assert str(copy) == str(error) == "p\n  reason: r\n  remedy: m"


def test_everything_public_is_there() -> None:
    for name in statemark.__all__:
        assert getattr(statemark, name) is not None
    with pytest.raises(AttributeError, match="module 'statemark' has no attribute 'nothing'"):
        _ = statemark.nothing


def test_help_begins_with_every_function() -> None:
    rows = re.findall(r"^    (\w+(?:, \w+)*)  +\w", statemark.__doc__ or "", re.MULTILINE)
    listed = {name for row in rows for name in row.split(", ")}
    functions = {name for name in statemark.__all__ if name.islower() and name[0] != "_"}
    assert listed == functions | {"MetricsListener"}


def test_a_module_that_stands_in_for_pyspark_is_taken_for_it() -> None:
    script = """
import sys, types
sys.modules["pyspark"] = types.ModuleType("pyspark")
import statemark
assert "MetricsListener" in statemark.__all__
"""
    subprocess.run([sys.executable, "-c", script], check=True)
