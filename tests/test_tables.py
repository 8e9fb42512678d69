"""Tables that both languages have say the same: settings, metrics, arguments of commands."""

from __future__ import annotations

import json
import random
import re
from dataclasses import fields
from fnmatch import fnmatchcase
from typing import Any

import pytest
from statemark import OperatorMetrics, SettingsError, offline, settings
from statemark.cli import make_parser
from statemark.operator_metrics import metric_columns
from support.session import ROOT
from support.tables import ask

_METRICS = (ROOT / "docs/metrics.md").read_text()
#: How documents write that there is none.
_NONE = "\u2013"
_TIMES = ["", "us", "ms", "s", "m", "min", "h", "d", "w", "sec", "ns", "y"]
_SIZES = ["", "b", "k", "kb", "m", "mb", "g", "gb", "t", "tb", "p", "pb", "e", "kib", "bb"]
_NUMBERS = ["0", "1", "7", "007", "500", "999", "1000", "1.5", "-1", "-2", "+3", "", "٣", "1e3"]
_LARGE = ["8191", "8192", "9007199254740991", str(2**63 - 1), str(2**63), "9" * 30]
_PATHS = [
    *("/a", "/", "a", "~/a", "", ".", "//a", "/a b", "/ä", "C:/a", "C:\\a"),
    *("file:/a", "file:///a", "file:a", "file:", "file://", "FILE:/a", "file://localhost/a"),
    *("file://host/a", "file://localhost:1/a", "file://u@localhost/a", "file:////a"),
    *("file:/a b", "file:/a%20b", "file:/a%zz", "file:/a?q", "file:/a#f", "file:/a#f#g"),
    *("file:/ä", "file:/[a]", "file:/a|b", "file:/a\u00a0b", "file:/a\u2003b", "file:/a\\b"),
    *("s3a://b/a", "hdfs:/a", "x:/a"),
]
_LEVELS = ["READ_COMMITTED", "read_uncommitted", "Read_Committed", "READ-COMMITTED", "", "1"]
_BY_UNIT = {
    "time": [n + u for n in [*_NUMBERS, *_LARGE] for u in _TIMES],
    "bytes": [n + u for n in [*_NUMBERS, *_LARGE] for u in _SIZES] + ["auto", "-1", "none"],
    "count": [*_NUMBERS, *_LARGE, "3d", "511", "512", "513", "0512", "0x1"],
    "path": _PATHS,
    "level": _LEVELS,
    "version": ["0.1.0", "1.2.3rc1", "1.0.0-b+a.b", "1.2", "1", "v1.2.3", "", "1.2.x", "1.2.3 4"],
    "word": ["refuse", "warn", "refused", "", "true", "warning"],
    "truth": ["true", "false", "yes", "on", "1", "0", "", "t", "truee"],
}


def samples(setting: settings.Setting) -> list[str]:
    """Values of its unit, as they are and as people write them: in capitals, with blanks."""
    plain = _BY_UNIT[setting.unit]
    dice = random.Random(31)
    blanks = [" ", "\t", "\n", "\u00a0", "\u2003"]
    dressed = [
        dice.choice(["", *blanks]) + dice.choice([value, value.upper(), value.title()])
        + dice.choice(["", *blanks])
        for value in plain
    ]  # fmt: skip
    within = [value[:1] + " " + value[1:] for value in plain if len(value) > 1]
    return [*plain, *dressed, *within]


def written(setting: settings.Setting, value: str) -> str | None:
    """Return what Python makes of a value, None where it refuses it."""
    try:
        return setting.written(value)
    except SettingsError:
        return None


@pytest.fixture(scope="module")
def table() -> dict[str, Any]:
    """The plugin's tables."""
    return ask()


def test_settings_are_the_same_row_by_row(table: dict[str, Any]) -> None:
    rows = [
        {"name": s.name, "unit": s.unit, "allowed": s.allowed, "text": s.text}
        | ({} if s.default is None else {"default": s.default})
        for s in settings.SETTINGS
    ]
    assert rows == table["settings"]


def test_both_take_the_same_values() -> None:
    values = {s.name: samples(s) for s in settings.SETTINGS}
    ours = {s.name: [written(s, value) for value in values[s.name]] for s in settings.SETTINGS}
    theirs = ask(values=values)["values"]
    again = ask(values={name: [v for v in made if v is not None] for name, made in ours.items()})
    for setting in settings.SETTINGS:
        name = setting.name
        differing = [
            (value, made, of_jvm)
            for value, made, of_jvm in zip(values[name], ours[name], theirs[name], strict=True)
            if (made is None) != (of_jvm is None)
        ]
        assert differing == [], name
        # What Python writes means to the plugin what the user wrote.
        assert [meant for meant in theirs[name] if meant] == again["values"][name], name
        assert {made is None for made in ours[name]} == {True, False}, name


def test_defaults_are_taken(table: dict[str, Any]) -> None:
    for setting in settings.SETTINGS:
        assert setting.default is None or setting.written(setting.default) == setting.default


def test_columns_are_made_of_metrics_that_exist(table: dict[str, Any]) -> None:
    names = [metric["name"] for metric in table["metrics"]]
    for column, pattern in metric_columns().items():
        assert any(fnmatchcase(name, pattern) for name in names), column


def test_documents_have_each_metric_with_its_unit_and_column(table: dict[str, Any]) -> None:
    columns = {pattern: column for column, pattern in metric_columns().items()}
    wanted = {}
    for metric in table["metrics"]:
        pattern = next((p for p in columns if fnmatchcase(metric["name"], p)), None)
        wanted[metric["name"]] = (columns[pattern] if pattern else _NONE, metric["unit"])
    found = {}
    for metrics, shown, units in re.findall(
        r"^\| (`statemark[^|]*) \| ([^|]*) \| ([^|]*) \|", _METRICS, re.MULTILINE
    ):
        names = re.findall(r"`(statemark[A-Za-z<>]+)[^`]*`", metrics)
        cells = [re.sub(r"`|\(.*\)", "", cell).strip() for cell in shown.split(", ")]
        kinds = units.split(", ")
        for index, name in enumerate(names):
            unit = kinds[index] if len(kinds) > 1 else kinds[0]
            for one in _expanded(name, wanted):
                found[one] = (cells[index], unit)
    assert found == wanted


def test_documents_have_each_gauge_with_its_unit_and_its_name_in_kafka(
    table: dict[str, Any],
) -> None:
    section = _METRICS.partition("\n## Gauges\n")[2]
    found = {}
    for gauges, unit, kafka in re.findall(
        r"^\| (`[^|]*) \| ([^|]*) \| [^|]* \| ([^|]*) \|$", section, re.MULTILINE
    ):
        for name in re.findall(r"`(\w+)`", gauges):
            found[name] = (unit, re.findall(r"`([\w-]+)`", kafka))
    known = {gauge["name"]: gauge for gauge in table["gauges"]}
    assert {name: (known[name]["unit"], of[1]) for name, of in found.items()} == found
    # The others are named by the rule that the table says.
    ruled = {re.sub(r"^statemark(.)", lambda m: m[1].lower(), m["name"]) for m in table["metrics"]}
    assert known.keys() - found.keys() <= ruled
    named = {name: [gauge["kafka"]] for name, gauge in known.items() if gauge.get("kafka")}
    assert {name: kafka for name, (_, kafka) in found.items() if kafka} == named


def _expanded(name: str, known: dict[str, Any]) -> list[str]:
    """Return the names that a name with a place for others in it stands for."""
    pattern = re.sub(r"<\w+>", "*", name)
    return [one for one in known if fnmatchcase(one, pattern)] or [name]


def test_every_column_says_what_it_is() -> None:
    listed = re.findall(r"^    (\w[\w, ]*) : ", OperatorMetrics.__doc__ or "", re.MULTILINE)
    assert [name for line in listed for name in line.split(", ")] == [
        column.name for column in fields(OperatorMetrics)
    ]


_LINES = [
    "switch /c --to rocksdb",
    "switch /c --to statemark --observe 0 --force --dry-run --json",
    "repartition /c --partitions 16",
    "repartition /c --rollback --observe 0.5 --dry-run",
    "repartition /c --partitions 2 --skip-uncommitted --verbose --json",
    "inspect /c --json",
    "verify /c --deep --json",
    "verify /ä",
    "local",
    "local --local-dir /d --stores --prune --max-age 12h --max-bytes 1g --dry-run --json",
    "topic status --bootstrap-servers b:1",
    "topic status q/s --bootstrap-servers b:1 --commit-topic c --command-config /f --prefix p"
    " --json",
    "topic finish q/s --bootstrap-servers b:1",
    "topic finish q/s --bootstrap-servers b:1 --commit-topic c --command-config /f --yes --json",
    "topic forget q/s --bootstrap-servers b:1 --force",
    "topic forget q/s --bootstrap-servers b:1 --command-config /f --all --yes --json",
    "topic compact t --bootstrap-servers b:1 --strategy timestamp",
    "topic compact t --bootstrap-servers b:1 --strategy header --header v --dry-run --set-lag"
    " --commit-topic c --missing refuse --change-rule"
    " --lateness 1h --scratch-dir /d --command-config /f --json",
    "topic compact t --bootstrap-servers b:1 --strategy timestamp --continuous --checkpoint /c"
    " --trigger 1s",
    "doctor --kafka b:1",
    "doctor --kafka b:1 --topic t --commit-topic c --prefix p --command-config /f --json"
    " --strategy header --header v",
]


def test_the_process_reads_what_users_type() -> None:
    requests = [offline._request(make_parser().parse_args(line.split())) for line in _LINES]
    assert {json.loads(request)["command"] for request in requests} == set(offline.NAMES)
    assert ask(requests=requests)["requests"] == [
        "Arguments(/c,rocksdb,5.0,false,false,false)",
        "Arguments(/c,statemark,0.0,true,true,true)",
        "Arguments(/c,Some(16),false,false,None,5.0,false,false)",
        "Arguments(/c,None,true,false,None,0.5,true,false)",
        "Arguments(/c,Some(2),false,true,None,5.0,false,true)",
        "Arguments(/c,true)",
        "Arguments(/c,true,true)",
        "Arguments(/ä,false,false)",
        "Arguments(None,None,None,false,false,false,false)",
        "Arguments(Some(/d),Some(12h),Some(1g),true,true,true,true)",
        "Arguments(b:1,statemark-commits,None,None,None,false)",
        "Arguments(b:1,c,Some(/f),Some(q/s),Some(p),true)",
        "Arguments(b:1,statemark-commits,None,q/s,false,false)",
        "Arguments(b:1,c,Some(/f),q/s,true,true)",
        "Arguments(b:1,statemark-commits,None,q/s,false,true,false,false)",
        "Arguments(b:1,statemark-commits,Some(/f),q/s,true,false,true,true)",
        "Arguments(t,b:1,statemark-commits,None,timestamp,None,oldest,false,false,false,None,None,"
        "false,None,10s,false)",
        "Arguments(t,b:1,c,Some(/f),header,Some(v),refuse,true,true,true,Some(1h),Some(/d),"
        "false,None,10s,true)",
        "Arguments(t,b:1,statemark-commits,None,timestamp,None,oldest,false,false,false,None,None,"
        "true,Some(/c),1s,false)",
        "Arguments(b:1,None,None,None,statemark-commits,statemark,None,false)",
        "Arguments(b:1,Some(t),Some(header),Some(v),c,p,Some(/f),true)",
    ]
