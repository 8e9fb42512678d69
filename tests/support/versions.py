"""The plugin's jar under another version."""

from __future__ import annotations

import re
import zipfile
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

_MANIFEST = "META-INF/MANIFEST.MF"


def renamed(jar: Path, version: str, folder: Path) -> Path:
    """
    Write the jar that a build with another `VERSION` makes of the same sources.

    No class knows the version: the manifest has it, and the name of the file.

    Parameters
    ----------
    jar
        The jar, which stays as it is.
    version
        The version that the copy says it has.
    folder
        Where the copy is written; it is made where it is missing.
    """
    folder.mkdir(parents=True, exist_ok=True)
    copy = folder / re.sub(r"-\d[^-]*\.jar$", f"-{version}.jar", jar.name)
    with zipfile.ZipFile(jar) as old, zipfile.ZipFile(copy, "w", zipfile.ZIP_DEFLATED) as new:
        for entry in old.infolist():
            content = old.read(entry)
            if entry.filename == _MANIFEST:
                pattern = rb"(?m)^((?:Implementation|Specification)-Version: )[^\r\n]*"
                content = re.sub(pattern, rb"\g<1>" + version.encode(), content)
            new.writestr(entry, content)
    return copy
