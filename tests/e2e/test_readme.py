"""The README's first screen runs as printed."""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


#: What stands in the example's place of a time: on a busy machine twenty seconds may not be enough.
_WAIT = "query.awaitTermination(20)  # seconds\n"
_UNTIL_COUNTED = """
while spark.table("counts").count() < 10:
    assert query.isActive, query.exception()
    query.awaitTermination(1)
"""


def test_the_first_example_of_the_readme_prints_counts_of_ten_keys() -> None:
    """As printed, but for the wait."""
    readme = (ROOT / "README.md").read_text()
    example = re.search(r"```python\n(.*?)```", readme, re.DOTALL)
    assert example is not None
    assert len(example.group(1).strip().splitlines()) <= 10
    assert example.group(1).count(_WAIT) == 1
    done = subprocess.run(
        [sys.executable, "-c", example.group(1).replace(_WAIT, _UNTIL_COUNTED)],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    rows = re.findall(r"^\|\s*(\d+)\|\s*(\d+)\|$", done.stdout, re.MULTILINE)
    assert {int(key) for key, _ in rows} == set(range(10))
    assert all(int(count) > 0 for _, count in rows)


def test_the_commands_of_the_readme_exist() -> None:
    """Every `make` target that the README names is one of the Makefile's."""
    readme = (ROOT / "README.md").read_text()
    makefile = (ROOT / "Makefile").read_text()
    named = set(re.findall(r"^make ([a-z-]+)", readme, re.MULTILINE))
    assert named == {"demo", "test"}
    for target in named:
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target
