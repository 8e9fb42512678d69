"""What the plugin says of its tables: settings, metrics, and the arguments of its commands."""

from __future__ import annotations

import json
import subprocess
from typing import TYPE_CHECKING, Any

import pyspark

from support.session import ROOT

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

_LINE = ".".join(pyspark.__version__.split(".")[:2])


def ask(
    *, values: Mapping[str, Sequence[str]] | None = None, requests: Sequence[str] = ()
) -> dict[str, Any]:
    """Run `statemark.spark.Tables`, a class of the plugin's tests.

    Parameters
    ----------
    values
        Values to be judged, by the name of their setting.
    requests
        JSON objects that the process of a command would be started with.

    Returns
    -------
    dict
        `settings` and `metrics`, the tables row by row; `values`, the settings that each value
        makes as text, None where it is refused; `requests`, their arguments as text.
    """
    options, of_sink = (
        ROOT / f"jvm/{module}/target/spark-{_LINE}/tests/options" for module in ("spark", "sink")
    )
    # The sink has commands as well. Of two class paths the last counts.
    class_path = f"{_class_path(options)}:{_class_path(of_sink)}"
    asked = json.dumps({"values": values or {}, "requests": list(requests)})
    done = subprocess.run(
        ["java", f"@{options}", "-cp", class_path, "statemark.spark.Tables"],
        input=asked,
        capture_output=True,
        text=True,
        encoding="utf-8",
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout.splitlines()[-1]))


def _class_path(options: Path) -> str:
    """Return the class path in a file of words for `java`, each quoted on a line of its own."""
    words = [line.strip('"') for line in options.read_text().splitlines()]
    return words[words.index("-cp") + 1]
