"""The README's first screen runs as printed."""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_first_example_of_the_readme_runs_in_an_empty_folder(tmp_path: Path) -> None:
    """As printed: counts of ten keys, and one of them by its key."""
    readme = (ROOT / "README.md").read_text()
    example = re.search(r"```python\n(.*?)```", readme, re.DOTALL)
    assert example is not None
    assert len(example.group(1).strip().splitlines()) <= 12
    done = subprocess.run(
        [sys.executable, "-c", example.group(1)],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    rows = re.findall(r"^\|\s*(\d+)\|\s*(\d+)\|$", done.stdout, re.MULTILINE)
    counts = {int(key): int(count) for key, count in rows}
    assert set(counts) == set(range(10))
    assert all(count > 0 for count in counts.values())
    one = re.search(
        r"^Row\(key=Row\((\w+)=7\), value=Row\(count=(\d+)\)", done.stdout, re.MULTILINE
    )
    assert one is not None, done.stdout
    assert one[1] != "key", "Spark names a computed column itself, whatever its alias"
    assert int(one[2]) >= counts[7]


def test_the_commands_of_the_readme_exist() -> None:
    """Every `make` target that the README names is one of the Makefile's."""
    readme = (ROOT / "README.md").read_text()
    makefile = (ROOT / "Makefile").read_text()
    named = set(re.findall(r"^make ([a-z-]+)", readme, re.MULTILINE))
    assert named == {"build", "demo", "test"}
    for target in named:
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target
