"""The commands of the README's first screen exist; its example is run in test_wheel."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_commands_of_the_readme_exist() -> None:
    """Every `make` target that the README names is one of the Makefile's."""
    readme = (ROOT / "README.md").read_text()
    makefile = (ROOT / "Makefile").read_text()
    named = set(re.findall(r"^make ([a-z-]+)", readme, re.MULTILINE))
    assert named == {"build", "demo", "quick", "test"}
    for target in named:
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target
