"""docker-compose.yml says what its comments promise; no container is started."""

from __future__ import annotations

import fnmatch
from typing import Any

import pytest
import yaml
from support.session import ROOT, STATEMARK_PROVIDER

_SPARK_SERVICES = ("spark-master", "spark-worker-1", "spark-worker-2")


@pytest.fixture(scope="module")
def compose() -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
    return loaded


@pytest.fixture(scope="module")
def defaults() -> dict[str, str]:
    """The settings that conf/spark-defaults.conf really sets."""
    lines = (ROOT / "conf/spark-defaults.conf").read_text().splitlines()
    pairs = [line.split(None, 1) for line in lines if line.strip() and not line.startswith("#")]
    return {key: value.strip() for key, value in pairs}


def mounts(service: dict[str, Any]) -> dict[str, str]:
    """Where a container sees what: path inside to path or volume outside."""
    return {inside: outside for outside, inside, *_ in (v.split(":") for v in service["volumes"])}


def test_there_are_a_broker_a_master_and_workers(compose: dict[str, Any]) -> None:
    services = compose["services"]
    assert {"kafka", *_SPARK_SERVICES} <= set(services)
    assert services["kafka"]["image"] == "apache/kafka:4.1.1"
    for name in _SPARK_SERVICES:
        assert "apache/spark:4.2.0" in services[name]["image"], name
    assert "Master" in services["spark-master"]["command"]
    for worker in _SPARK_SERVICES[1:]:
        assert "spark://spark-master:7077" in services[worker]["command"], worker


def test_every_lasting_service_has_a_health_check(compose: dict[str, Any]) -> None:
    lasting = {n: s for n, s in compose["services"].items() if s.get("restart") != "no"}
    assert [name for name, service in lasting.items() if "healthcheck" not in service] == []


def test_named_volumes_and_dependencies_exist(compose: dict[str, Any]) -> None:
    for name, service in compose["services"].items():
        for outside in mounts(service).values():
            assert outside.startswith("./") or outside in compose["volumes"], (name, outside)
        assert set(service.get("depends_on", {})) <= set(compose["services"]), name


@pytest.mark.parametrize("name", _SPARK_SERVICES)
def test_spark_sees_jar_package_conf_and_checkpoints(name: str, compose: dict[str, Any]) -> None:
    service = compose["services"][name]
    mounted = mounts(service)
    assert mounted["/checkpoints"] == "checkpoints"
    assert (ROOT / mounted["/opt/spark/conf"] / "spark-defaults.conf").is_file()
    package = service["environment"]["PYTHONPATH"]
    assert (ROOT / mounted[package] / "statemark/__init__.py").is_file()
    # By directory: the jar is there after `make build`, under the name that the Makefile gives it.
    assert ROOT / mounted["/opt/statemark/jars"] == ROOT / "python/src/statemark/jars"


def test_the_jar_of_this_version_is_on_the_class_path(defaults: dict[str, str]) -> None:
    version = (ROOT / "VERSION").read_text().strip()
    jar = f"/opt/statemark/jars/statemark-spark_4.2_2.13-{version}.jar"
    assert fnmatch.fnmatch(jar, defaults["spark.jars"])
    assert defaults["spark.sql.streaming.stateStore.providerClass"] == STATEMARK_PROVIDER
