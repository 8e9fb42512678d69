from __future__ import annotations

from pathlib import Path

import pytest

from statemark import IsolationLevel, SettingsError, settings

PREFIX = "spark.sql.streaming.stateStore.statemark."
ALL = (
    "isolationLevel or maxUncommittedBytes or localDir or localDirMaxBytes or localDirMaxAge"
    " or readRetentionVersions or readRetentionTime or checkOffsets or kafka.warnings"
    f" or allowRealTime or packageVersion, each after {PREFIX}"
)


def test_keys_are_the_published_ones() -> None:
    assert settings.ISOLATION_LEVEL.key == PREFIX + "isolationLevel"
    assert settings.MAX_UNCOMMITTED_BYTES.key == PREFIX + "maxUncommittedBytes"
    assert settings.LOCAL_DIR.key == PREFIX + "localDir"
    assert settings.PROVIDER_CLASS_KEY == "spark.sql.streaming.stateStore.providerClass"
    assert settings.PROVIDER_CLASS == "statemark.spark.StatemarkStateStoreProvider"


SIZE_UNITS = "b, k, m, g, t, p, kb, kib, mb, mib, gb, gib, tb, tib, pb, pib"


@pytest.mark.parametrize("value", ["READ_COMMITTED", "read_committed", " Read_Committed "])
def test_isolation_levels_are_read_in_either_case(value: str) -> None:
    assert IsolationLevel.parse(value) is IsolationLevel.READ_COMMITTED
    assert settings.ISOLATION_LEVEL.written(value) == "READ_COMMITTED"


def test_isolation_level_from_the_enumeration() -> None:
    assert settings.ISOLATION_LEVEL.written(IsolationLevel.READ_UNCOMMITTED) == "READ_UNCOMMITTED"


@pytest.mark.parametrize("value", ["", "COMMITTED", "read-committed", "serializable", None, 1])
def test_other_isolation_levels_are_refused(value: object) -> None:
    with pytest.raises(SettingsError) as caught:
        settings.ISOLATION_LEVEL.written(value)
    assert str(caught.value) == (
        f"bad value {value!r} for {PREFIX}isolationLevel\n"
        "  reason: it names none of the levels\n"
        "  remedy: use READ_COMMITTED or READ_UNCOMMITTED, in either case"
    )


@pytest.mark.parametrize(
    ("value", "written"),
    [
        (1, "1"),
        (268435456, "268435456"),
        (-1, "-1"),
        ("-1", "-1"),
        ("auto", "auto"),
        ("AUTO", "auto"),
        (" 64m ", "64m"),
        ("64MiB", "64mib"),
        ("64MB", "64mb"),
        ("1b", "1b"),
        ("2k", "2k"),
        ("2kb", "2kb"),
        ("3g", "3g"),
        ("3Gb", "3gb"),
        ("4t", "4t"),
        ("4tb", "4tb"),
        ("5p", "5p"),
        ("5pb", "5pb"),
        (2**63 - 1, str(2**63 - 1)),
        ("8191p", "8191p"),
    ],
)
def test_sizes(value: int | str, written: str) -> None:
    assert settings.MAX_UNCOMMITTED_BYTES.written(value) == written


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (0, f"0 bytes is not within 1..{2**63 - 1}"),
        ("0m", f"0 bytes is not within 1..{2**63 - 1}"),
        (2**63, f"{2**63} bytes is not within 1..{2**63 - 1}"),
        ("8192p", f"{2**63} bytes is not within 1..{2**63 - 1}"),
        (-2, "a size is a whole number and an optional unit"),
        ("", "a size is a whole number and an optional unit"),
        ("1.5g", "a size is a whole number and an optional unit"),
        ("64 m", "a size is a whole number and an optional unit"),
        ("m", "a size is a whole number and an optional unit"),
        ("٣m", "a size is a whole number and an optional unit"),
        ("64q", f"'q' is not a unit of size; the units are {SIZE_UNITS}"),
        ("64bb", f"'bb' is not a unit of size; the units are {SIZE_UNITS}"),
        ("64eib", f"'eib' is not a unit of size; the units are {SIZE_UNITS}"),
        (True, "a bool is not a size"),
        (64.0, "a float is not a size"),
    ],
)
def test_other_sizes_are_refused(value: object, reason: str) -> None:
    with pytest.raises(SettingsError) as caught:
        settings.MAX_UNCOMMITTED_BYTES.written(value)
    assert str(caught.value) == (
        f"bad value {value!r} for {PREFIX}maxUncommittedBytes\n"
        f"  reason: {reason}\n"
        "  remedy: use a size above 0 such as 64m or 268435456, -1 for no limit, or auto"
    )


@pytest.mark.parametrize(
    "value",
    ["/var/lib/statemark", "file:/var/lib", "file:///var/lib", "file://localhost/x", "/a b"],
)
def test_local_directories(value: str) -> None:
    assert settings.LOCAL_DIR.written(value) == value


def test_a_local_directory_may_be_a_path() -> None:
    assert settings.LOCAL_DIR.written(Path("/var/lib")) == "/var/lib"


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ("", "the path is empty"),
        ("state", "the path is relative"),
        ("~/state", "the path is relative"),
        (Path("state"), "the path is relative"),
        ("file:state", "the path in the URI is relative"),
        ("FILE:/state", "stores work on a local disk, and FILE: is not one"),
        (
            "file:/a b",
            "it is no URI: what URIs do not take is written as %20 and the like",
        ),
        ("file://host/state", "the URI names the host 'host'"),
        ("s3a://bucket/state", "stores work on a local disk, and s3a: is not one"),
        ("hdfs:/state", "stores work on a local disk, and hdfs: is not one"),
        (3, "a int is not a path"),
    ],
)
def test_other_directories_are_refused(value: object, reason: str) -> None:
    with pytest.raises(SettingsError) as caught:
        settings.LOCAL_DIR.written(value)
    assert str(caught.value) == (
        f"bad value {value!r} for {PREFIX}localDir\n"
        f"  reason: {reason}\n"
        "  remedy: use an absolute path, or file: and an absolute path"
    )


@pytest.mark.parametrize(
    ("key", "remedy"),
    [
        ("isolatonLevel", f"did you mean {PREFIX}isolationLevel?"),
        ("maxuncommitedbytes", f"did you mean {PREFIX}maxUncommittedBytes?"),
        ("rocksdb.x", f"remove it, or use {ALL}"),
        ("", f"remove it, or use {ALL}"),
    ],
)
def test_unknown_keys_under_the_prefix_are_refused(key: str, remedy: str) -> None:
    with pytest.raises(SettingsError) as caught:
        settings.check({PREFIX + key: "v"}, source="the builder")
    assert str(caught.value) == (
        f"unknown setting {PREFIX}{key} = 'v', set in the builder\n"
        "  reason: no setting of Statemark has this key\n"
        f"  remedy: {remedy}"
    )


@pytest.mark.parametrize("value", ["7d", "12H", " 30min ", "500ms", "1500us", "7"])
def test_ages_are_durations(value: str) -> None:
    assert settings.LOCAL_DIR_MAX_AGE.written(value) == value.strip().lower()


@pytest.mark.parametrize("value", ["0d", "soon", "999us", "-1d", "1w", "1.5h", "", str(2**63)])
def test_other_ages_are_refused(value: str) -> None:
    with pytest.raises(SettingsError, match="localDirMaxAge"):
        settings.LOCAL_DIR_MAX_AGE.written(value)


def test_what_live_reads_may_still_see() -> None:
    assert settings.READ_RETENTION_VERSIONS.written(0) == "0"
    assert settings.READ_RETENTION_TIME.written("5M") == "5m"
    with pytest.raises(SettingsError, match=r"readRetentionVersions(.|\n)*from 0 to 512"):
        settings.READ_RETENTION_VERSIONS.written(513)
    assert settings.READ_RETENTION_VERSIONS.written("0003") == "0003"
    with pytest.raises(SettingsError, match=r"readRetentionTime(.|\n)*30s"):
        settings.READ_RETENTION_TIME.written("0s")


def test_sizes_of_the_local_directory() -> None:
    assert settings.LOCAL_DIR_MAX_BYTES.written("50G") == "50g"
    with pytest.raises(SettingsError, match=r"localDirMaxBytes(.|\n)*50g"):
        settings.LOCAL_DIR_MAX_BYTES.written("-1")


@pytest.mark.parametrize(
    ("key", "remedy"),
    [
        ("spark.statemark.localDir", f"use {PREFIX}localDir"),
        ("spark.statemark.localdir", f"use {PREFIX}localDir"),
        ("spark.Statemark.isolationLevel", f"use {PREFIX}isolationLevel"),
        ("spark.statemark.localDri", f"did you mean {PREFIX}localDir?"),
        ("spark.statemark.speed", f"remove it, or use {ALL}"),
    ],
)
def test_a_prefix_that_is_too_short_is_refused_with_the_right_one(key: str, remedy: str) -> None:
    with pytest.raises(SettingsError) as caught:
        settings.check({key: "v"}, source="the builder")
    assert caught.value.problem == f"unknown setting {key} = 'v', set in the builder"
    assert caught.value.reason == f"settings of Statemark begin with {PREFIX}"
    assert caught.value.remedy.startswith(remedy)


def test_a_prefix_in_the_wrong_case_is_an_unknown_key() -> None:
    with pytest.raises(SettingsError, match="unknown setting spark.sql.streaming.statestore"):
        settings.check({PREFIX.lower() + "localDir": "/d"}, source="the builder")


def test_what_follows_the_prefix_is_taken_in_either_case() -> None:
    settings.check({PREFIX + "isolationlevel": "READ_COMMITTED"}, source="the builder")
    with pytest.raises(SettingsError, match=f"bad value 'x' for {PREFIX}isolationLevel"):
        settings.check({PREFIX + "ISOLATIONLEVEL": "x"}, source="the builder")


def test_known_keys_are_checked_and_others_passed_over() -> None:
    good = {PREFIX + "isolationLevel": "read_uncommitted", PREFIX + "localDir": "/d"}
    settings.check({**good, "spark.x": "?", "spark.sql.streaming.stateStore.y": 1}, source="s")
    with pytest.raises(SettingsError, match="bad value 'x' for .*maxUncommittedBytes"):
        settings.check({**good, PREFIX + "maxUncommittedBytes": "x"}, source="s")


def test_warnings_are_on_or_off() -> None:
    assert [settings.KAFKA_WARNINGS.written(v) for v in (False, "TRUE")] == ["false", "true"]
    with pytest.raises(SettingsError, match=r"kafka\.warnings(.|\n)*true or false"):
        settings.KAFKA_WARNINGS.written("off")
