from __future__ import annotations

from pathlib import Path

import pytest

from statemark import properties


@pytest.mark.parametrize(
    ("text", "settings"),
    [
        ("spark.a 1", {"spark.a": "1"}),
        ("spark.a=1\nspark.b: 2\nspark.c = 3", {"spark.a": "1", "spark.b": "2", "spark.c": "3"}),
        ("# no\n  ! no\n\n \t\nspark.a  x y  ", {"spark.a": "x y"}),
        (
            "spark.a one,\\\n    two,\\\n\tthree\nspark.b 2",
            {"spark.a": "one,two,three", "spark.b": "2"},
        ),
        ("spark.a x\\\\\nspark.b y", {"spark.a": "x\\", "spark.b": "y"}),
        ("spark\\:a b=c:d", {"spark:a": "b=c:d"}),
        ("spark.a \\u00e9\\tx", {"spark.a": "é\tx"}),
        ("spark.a", {"spark.a": ""}),
        ("spark.a 1\nspark.a 2", {"spark.a": "2"}),
        ("spark.a 1,\\", {"spark.a": "1,"}),
        ("spark.a 1,\\\n# 2", {"spark.a": "1,# 2"}),
        ("", {}),
    ],
)
def test_reading(tmp_path: Path, text: str, settings: dict[str, str]) -> None:
    file = tmp_path / "p.conf"
    file.write_text(text, encoding="utf-8")
    assert properties.read(file) == settings


def test_a_missing_file_is_empty(tmp_path: Path) -> None:
    assert properties.read(tmp_path / "none.conf") == {}


def test_what_is_written_is_read(tmp_path: Path) -> None:
    settings = {"spark.a": r"C:\new dir\u0041", "spark.b": "x=y: z #!", "spark.c": ""}
    file = tmp_path / "p.conf"
    file.write_text(properties.write(settings), encoding="utf-8")
    assert properties.read(file) == settings


def test_bytes_that_are_no_text_are_replaced_as_java_does(tmp_path: Path) -> None:
    file = tmp_path / "spark-defaults.conf"
    file.write_bytes(b"spark.app.name caf\xe9\n\xff\xfe\nspark.jars /a.jar\n")
    found = properties.read(file)
    assert (found["spark.app.name"], found["spark.jars"]) == ("caf\ufffd", "/a.jar")


def test_a_value_of_several_lines_is_one_setting(tmp_path: Path) -> None:
    wanted = {"spark.hadoop.key": "-----BEGIN\nab\\c\td\r\n-----END", "spark.x": "1"}
    file = tmp_path / "a.conf"
    file.write_text(properties.write(wanted))
    assert len(file.read_text().splitlines()) == 2
    assert properties.read(file) == wanted
