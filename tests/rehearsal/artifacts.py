"""Checks of what is published: contents, checksums, and the same bytes from a second build."""

from __future__ import annotations

import hashlib
import io
import os
import re
import shutil
import tarfile
import zipfile
from pathlib import Path
from xml.etree import ElementTree

from rehearsal.environments import OUT, RELEASES, ROOT, VERSION, expect, run
from rehearsal.users import DIST, MAVEN, build_python, jars_of

#: Folders of the jar: the project's packages, and the one file in a package of Spark's.
_OWN = re.compile(
    r"(statemark/|org/apache/spark/sql/execution/streaming/state/|META-INF/(MANIFEST\.MF|LICENSE"
    r"|NOTICE|services/))"
)
_POM = "{http://maven.apache.org/POM/4.0.0}"
_CHECKSUMS = ("md5", "sha1", "sha256")


def wheel() -> Path:
    """Return the wheel in `dist`."""
    (found,) = DIST.glob(f"statemark-{VERSION}-py3-none-any.whl")
    return found


def sources() -> Path:
    """Return the sources in `dist`."""
    (found,) = DIST.glob(f"statemark-{VERSION}.tar.gz")
    return found


def contents() -> str:
    """Check what wheel, sources and jars hold."""
    with zipfile.ZipFile(wheel()) as archive:
        names = set(archive.namelist())
    info = f"statemark-{VERSION}.dist-info/licenses"
    for name in (f"{info}/LICENSE", f"{info}/NOTICE", "statemark/py.typed", "statemark/VERSION"):
        expect(name in names, f"the wheel has no {name}")
    with tarfile.open(sources()) as archive:
        entries = {entry.name: entry for entry in archive.getmembers()}
    for name in ("LICENSE", "NOTICE", "pyproject.toml", "setup.py", "src/statemark/VERSION"):
        entry = entries.get(f"statemark-{VERSION}/{name}")
        expect(entry is not None and entry.isfile(), f"the sources have no file {name}")
    jars = jars_of(wheel())
    for line, jar in jars.items():
        _jar(line, jar)
    return f"{len(jars)} jars, {wheel().stat().st_size / 1e6:.1f} MB"


def _jar(line: str, content: bytes) -> None:
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        names = [name for name in archive.namelist() if not name.endswith("/")]
        manifest = archive.read("META-INF/MANIFEST.MF").decode()
        for name in ("LICENSE", "NOTICE"):
            same = archive.read(f"META-INF/{name}") == (ROOT / name).read_bytes()
            expect(same, f"the jar for {line} has another {name}")
    others = [name for name in names if not _OWN.match(name)]
    expect(not others, f"the jar for {line} bundles {others[:5]}: name them in NOTICE")
    expect(f"Implementation-Version: {VERSION}" in manifest, f"the jar for {line}: {manifest}")


def repository() -> str:
    """Check the Maven repository: the jar is the wheel's, and the POM asks for nothing."""
    for line, jar in jars_of(wheel()).items():
        artifact = f"statemark-spark_{line}_2.13"
        folder = MAVEN / "io/statemark" / artifact / VERSION
        stem = f"{artifact}-{VERSION}"
        expect((folder / f"{stem}.jar").read_bytes() == jar, f"{stem}.jar is not the wheel's")
        for name in (f"{stem}.jar", f"{stem}.pom", f"{stem}-sources.jar", f"{stem}-javadoc.jar"):
            content = (folder / name).read_bytes()
            for kind in _CHECKSUMS:
                said = (folder / f"{name}.{kind}").read_text().split()[0]
                expect(said == hashlib.new(kind, content).hexdigest(), f"{kind} of {name}")
        _pom(folder / f"{stem}.pom", artifact)
    return f"{len(RELEASES)} artifacts"


def _pom(path: Path, artifact: str) -> None:
    root = ElementTree.parse(path).getroot()  # our own file
    for name in ("name", "description", "url", "licenses", "scm", "developers", "version"):
        expect(root.find(_POM + name) is not None, f"{path.name} has no {name}")
    expect(root.findtext(f"{_POM}artifactId") == artifact, f"{path.name} is of another artifact")
    for dependency in root.iter(f"{_POM}dependency"):
        scope = dependency.findtext(f"{_POM}scope")
        what = dependency.findtext(f"{_POM}artifactId")
        expect(scope in ("provided", "test"), f"{path.name} brings {what} in scope {scope}")


def same_archives() -> str:
    """Build wheel and sources a second time, in another folder and with other times of files."""
    folder = OUT / "again"
    shutil.rmtree(folder, ignore_errors=True)
    copy = folder / "python"
    skipped = shutil.ignore_patterns("*.egg-info", "build", "__pycache__")
    shutil.copytree(ROOT / "python", copy, ignore=skipped, copy_function=shutil.copy)
    (seconds,) = run("git", "log", "-1", "--format=%ct", cwd=ROOT).split()
    env = os.environ | {"SOURCE_DATE_EPOCH": seconds, "TZ": "Pacific/Chatham", "LANG": "C"}
    run(build_python(), "-m", "build", "--no-isolation", "--outdir", folder / "dist", copy, env=env)
    for one in (wheel(), sources()):
        other = folder / "dist" / one.name
        expect(_sha256(one) == _sha256(other), f"{other} differs from {one}")
    return "wheel and sources: equal hashes"


def same_jar(line: str) -> str:
    """Build the jar of a line from a clean clone of the last commit; its bytes are the wheel's."""
    expect(
        not run("git", "status", "--porcelain", "--", "jvm", "project", "build.sbt", cwd=ROOT),
        "files of the jar differ from the commit: commit them first",
    )
    clone = OUT / "clone"
    shutil.rmtree(clone, ignore_errors=True)
    run("git", "clone", "-q", "--no-hardlinks", ROOT, clone)
    run("bin/sbt", "provider/assembly", cwd=clone, env=os.environ | {"SPARK": line})
    name = f"statemark-spark_{line}_2.13-{VERSION}.jar"
    other = clone / f"jvm/spark/target/spark-{line}/scala-2.13" / name
    expect(other.read_bytes() == jars_of(wheel())[line], f"{other} differs from the wheel's")
    shutil.rmtree(clone)
    return f"jar for {line} of a clean clone: equal bytes"


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
