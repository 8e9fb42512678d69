"""The wheel, and the README's example run from it; all of it is `make release-rehearsal`."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from typing import TYPE_CHECKING

import pytest
from rehearsal.environments import RELEASES, VERSION
from rehearsal.users import BEFORE, checked, example_of_readme
from support.session import LINE, ROOT, STATEMARK_PROVIDER, statemark_jar
from support.versions import renamed

if TYPE_CHECKING:
    from pathlib import Path

_TIMEOUT_S = 300


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Sources, and the wheel that pip would build of them, with the real jar of this line alone."""
    folder = tmp_path_factory.mktemp("dist")
    copy = folder / "python"
    skipped = shutil.ignore_patterns("jars", "__pycache__", "*.egg-info", "build", "tests", ".*")
    shutil.copytree(ROOT / "python", copy, ignore=skipped)
    jars = copy / "src/statemark/jars"
    jars.mkdir()
    for line in RELEASES:
        jar = jars / f"statemark-spark_{line}_2.13-{VERSION}.jar"
        if line == LINE:
            shutil.copy(statemark_jar(), jar)
        else:
            jar.write_bytes(b"")
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(folder), str(copy)]
    done = subprocess.run(
        command, check=False, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    assert done.returncode == 0, done.stdout[-3000:]
    return folder


@pytest.fixture(scope="module")
def site(dist: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, unpacked as pip does it."""
    folder = tmp_path_factory.mktemp("site")
    (wheel,) = dist.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)
    return folder


def test_the_wheel_has_the_jars_the_types_and_the_command(dist: Path, site: Path) -> None:
    (wheel,) = dist.glob("*.whl")
    assert wheel.name == f"statemark-{VERSION}-py3-none-any.whl"
    (info,) = site.glob("*.dist-info")
    metadata = (info / "METADATA").read_text()
    assert {jar.name for jar in (site / "statemark/jars").iterdir()} == {
        f"statemark-spark_{line}_2.13-{VERSION}.jar" for line in RELEASES
    }
    assert (site / "statemark/py.typed").is_file()
    assert (site / "statemark/VERSION").read_text().strip() == VERSION
    assert "statemark = statemark.cli:main" in (info / "entry_points.txt").read_text()
    required = re.findall(r"^Requires-Dist: (.+)$", metadata, flags=re.MULTILINE)
    assert all("extra ==" in line for line in required), "a dependency is mandatory"
    assert re.search(r"^Requires-Python: >=3.10$", metadata, flags=re.MULTILINE)
    for name in ("LICENSE", "NOTICE"):
        assert (info / "licenses" / name).read_bytes() == (ROOT / name).read_bytes()
    (sources,) = dist.glob("*.tar.gz")
    with tarfile.open(sources) as archive:
        kinds = {entry.name: entry.isfile() for entry in archive.getmembers()}
    for name in ("LICENSE", "NOTICE", "src/statemark/VERSION"):
        assert kinds[f"statemark-{VERSION}/{name}"], f"{name} is no file, or a link out of it"
    with zipfile.ZipFile(statemark_jar()) as archive:
        for name in ("LICENSE", "NOTICE"):
            assert archive.read(f"META-INF/{name}") == (ROOT / name).read_bytes()


def _example(site: Path, cwd: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run the README's example by the package of a folder, in an empty one."""
    where = f"import statemark\nassert statemark.__file__.startswith({str(site)!r})\n"
    return subprocess.run(
        [sys.executable, "-c", where + example_of_readme()],
        capture_output=True,
        text=True,
        timeout=_TIMEOUT_S,
        check=False,
        cwd=cwd,
        env=os.environ | {"PYTHONPATH": str(site), **variables},
    )


def test_the_first_example_of_the_readme_runs_in_an_empty_folder(
    site: Path, tmp_path: Path
) -> None:
    """As printed: counts of ten keys, and one of them by its key."""
    assert len(example_of_readme().strip().splitlines()) <= 12
    done = _example(site, tmp_path)
    assert done.returncode == 0, done.stderr[-3000:]
    checked(done.stdout)


def test_a_jar_of_another_version_before_the_packages(
    site: Path, tmp_path: Path, provider: str
) -> None:
    """The session does not start, and says which two versions there are."""
    if provider != STATEMARK_PROVIDER:
        pytest.skip("Spark's provider has no jar")
    other = renamed(statemark_jar(), BEFORE, tmp_path)
    arguments = f"--driver-class-path {other} pyspark-shell"
    done = _example(site, tmp_path, PYSPARK_SUBMIT_ARGS=arguments)
    assert done.returncode == 1
    problem, reason, remedy = done.stderr.rstrip().splitlines()[-3:]
    assert problem == (
        f"statemark.errors.SettingsError: the driver has the jar of Statemark {BEFORE}, and the "
        f"Python package is {VERSION}"
    )
    assert reason.startswith("  reason: another jar of Statemark's")
    assert remedy.startswith(f"  remedy: remove the jar of {BEFORE}")
