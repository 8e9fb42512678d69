"""The samples for Kubernetes say the same, in both of their forms, and nothing that is unknown."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from statemark import properties, settings

SAMPLES = Path(__file__).resolve().parents[1] / "conf/kubernetes"


@pytest.mark.parametrize("file", sorted(SAMPLES.glob("*.conf")), ids=lambda file: file.stem)
def test_settings_are_those_that_configure_makes(file: Path) -> None:
    conf = properties.read(file)
    settings.check(conf, source=file.name)
    assert conf[settings.PROVIDER_CLASS_KEY] == settings.PROVIDER_CLASS
    assert conf[settings.PLUGINS_KEY] == settings.PLUGIN
    (mount,) = (value for key, value in conf.items() if key.endswith(".mount.path"))
    assert conf[settings.LOCAL_DIR.key].startswith(f"{mount}/")


def test_the_application_has_the_settings_of_the_properties_file() -> None:
    application = yaml.safe_load((SAMPLES / "spark-application.yaml").read_text())
    conf = properties.read(SAMPLES / "persistent-volume.conf")
    assert application["spec"]["sparkConf"] == conf
    version = (SAMPLES.parents[1] / "VERSION").read_text().strip()
    (jar,) = application["spec"]["deps"]["jars"]
    assert jar.endswith(f"_2.13-{version}.jar")
