"""The bill of materials of a release, in CycloneDX's JSON, on standard output.

The jars in the wheel are its only parts. What they run with is listed as required or optional, with
the property that it is not bundled: users have it with Spark, or with Spark's Kafka connector.
"""

from __future__ import annotations

import datetime
import hashlib
import re
import sys
import uuid
from typing import TYPE_CHECKING

from cyclonedx.model import HashAlgorithm, HashType, Property
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentScope, ComponentType
from cyclonedx.model.license import LicenseExpression
from cyclonedx.output.json import JsonV1Dot6
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from packageurl import PackageURL

from rehearsal.artifacts import wheel
from rehearsal.environments import ROOT, VERSION, expect, run
from rehearsal.users import jars_of

if TYPE_CHECKING:
    from collections.abc import Sequence

_LINE = re.compile(
    r'^\s+Line\("([^"]+)", spark = "([^"]+)", scala = "([^"]+)", rocksdb = "([^"]+)"', re.MULTILINE
)
_APACHE = "Apache-2.0"


def bill() -> str:
    """Make the bill of the wheel in `dist`, and check it against CycloneDX's schema."""
    content = wheel().read_bytes()
    whole = Component(
        type=ComponentType.LIBRARY,
        name="statemark",
        version=VERSION,
        licenses=[LicenseExpression(_APACHE)],
        purl=PackageURL("pypi", None, "statemark", VERSION),
        bom_ref="wheel",
        hashes=[_hash(content)],
    )
    (seconds,) = run("git", "log", "-1", "--format=%ct", cwd=ROOT).split()
    # Equal sources have an equal bill: its number is made of the wheel, its time is the commit's.
    bom = Bom(serial_number=uuid.uuid5(uuid.NAMESPACE_OID, hashlib.sha256(content).hexdigest()))
    bom.metadata.component = whole
    bom.metadata.timestamp = datetime.datetime.fromtimestamp(int(seconds), datetime.timezone.utc)
    lines = {line: rest for line, *rest in _LINE.findall(_text("project/SparkVersions.scala"))}
    for line, jar in sorted(jars_of(wheel()).items()):
        part = Component(
            type=ComponentType.LIBRARY,
            group="io.statemark",
            name=f"statemark-spark_{line}_2.13",
            version=VERSION,
            licenses=[LicenseExpression(_APACHE)],
            purl=PackageURL("maven", "io.statemark", f"statemark-spark_{line}_2.13", VERSION),
            bom_ref=f"jar-{line}",
            hashes=[_hash(jar)],
        )
        bom.components.add(part)
        needed = [_known(bom, component) for component in _needed(*lines[line])]
        bom.register_dependency(part, needed)
    bom.register_dependency(whole, [c for c in bom.components if c.group == "io.statemark"])
    text = JsonV1Dot6(bom).output_as_string(indent=1)
    wrong = JsonStrictValidator(SchemaVersion.V1_6).validate_str(text)
    if wrong is not None:
        problem = f"the bill of materials is not CycloneDX: {wrong}"
        raise ValueError(problem)
    return text


def checked() -> str:
    """Compare the bill that `make wheel` has written with one that is made now."""
    path = ROOT / f"target/release/statemark-{VERSION}.cdx.json"
    expect(path.read_text() == bill() + "\n", f"{path} is not the bill of this wheel")
    return "CycloneDX 1.6, of this wheel"


def _needed(spark: str, scala: str, rocksdb: str) -> Sequence[Component]:
    """Return what a jar runs with."""
    build = _text("build.sbt")
    (kafka,) = re.findall(r'statemark\.kafkaClients", "([\d.]+)"', build)
    (roaring,) = re.findall(r'"RoaringBitmap" % "([\d.]+)"', build)
    return (
        _library("org.apache.spark", "spark-sql_2.13", spark),
        _library("org.scala-lang", "scala-library", scala),
        _library("org.rocksdb", "rocksdbjni", rocksdb, license="Apache-2.0 OR GPL-2.0-only"),
        _library("org.roaringbitmap", "RoaringBitmap", roaring),
        _library("org.apache.kafka", "kafka-clients", kafka, scope=ComponentScope.OPTIONAL),
    )


def _library(
    group: str,
    name: str,
    version: str,
    *,
    license: str = _APACHE,  # noqa: A002 - what CycloneDX calls it
    scope: ComponentScope = ComponentScope.REQUIRED,
) -> Component:
    return Component(
        type=ComponentType.LIBRARY,
        group=group,
        name=name,
        version=version,
        scope=scope,
        licenses=[LicenseExpression(license)],
        purl=PackageURL("maven", group, name, version),
        bom_ref=f"{name}-{version}",
        properties=[Property(name="statemark:bundled", value="false")],
    )


def _known(bom: Bom, component: Component) -> Component:
    """Return the component of the bill that is the same, else add this one."""
    for other in bom.components:
        if other.bom_ref == component.bom_ref:
            return other
    bom.components.add(component)
    return component


def _hash(content: bytes) -> HashType:
    return HashType(alg=HashAlgorithm.SHA_256, content=hashlib.sha256(content).hexdigest())


def _text(path: str) -> str:
    return (ROOT / path).read_text()


if __name__ == "__main__":
    sys.stdout.write(bill() + "\n")
