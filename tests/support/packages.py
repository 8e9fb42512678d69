"""The packages of the JVM's main code: their order, who uses whom, and files that use each other.

``python -m support.packages`` prints the graph. The rules of the house read it from here.
"""

from __future__ import annotations

import re
import sys
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

#: Packages of each module below its own, lowest first: a package imports those before it only.
#: The empty name is the module's own package.
ORDERS: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "jvm/core/src/main": (
        "statemark",
        ("common", "changelog", "engine", "staging", "transaction", ""),
    ),
    "jvm/kafka/src/main": (
        "statemark.kafka",
        # Its own package has names that all of them use.
        (
            *("", "conf", "clients", "rows", "decision", "log", "executor", "driver", "tools"),
            *("compaction", "doctor"),
        ),
    ),
    "jvm/spark/src/main": (
        "statemark.spark",
        (
            *("errors", "process", "conf", "rows", "memory", "checkpoint", "changelog"),
            *("local", "snapshot", "load", "metrics", "cluster", "reads"),
            *("provider", "live", "plan", "latest", ""),
            *("offline.cli", "offline.checkpoint", "offline.ownership", "offline.verify"),
            *("offline.local", "offline.inspect", "offline.switching", "offline.repartition"),
            "offline",
        ),
    ),
    "jvm/sink/src/main": (
        "statemark.kafka.sink",
        ("conf", "executor", "driver", "warnings", "", "compaction", "commands"),
    ),
}
MAX_FILES = 15
#: Of the lines in which the graph is printed.
WIDTH = 120
#: As many files may use each other in a circle: a class and what was cut out of it.
MAX_KNOT = 2

_COMMENT = re.compile(r"/\*.*?\*/|(?<![:\"])//[^\n]*", re.DOTALL)
_STRING = re.compile(r'"""(?:.|\n)*?"""|"(?:\\.|[^"\\\n])*"')
_INTERPOLATED = re.compile(r"\$\{([^}]*)\}|\$(\w+)")
_PACKAGE = re.compile(r"^package\s+([\w.]+)", re.MULTILINE)
_IMPORT = re.compile(r"import\s+([\w.]+)\.(\{[^}]*\}|\w+)")
_DEFINED = re.compile(
    r"^((?:(?:private|protected|final|sealed|abstract|case|implicit|lazy)(?:\[\w+\])?\s+)*)"
    r"(?:class|object|trait|type)\s+(\w+)",
    re.MULTILINE,
)
_TYPE = re.compile(r"\b[A-Z]\w*")


@dataclass(frozen=True)
class Source:
    """
    A Scala file.

    Attributes
    ----------
    path, package
        Where it lies, and what it says that it belongs to.
    code
        Its text without comments and without what stands in strings.
    defined
        Names at its top level that other files see.
    """

    path: Path
    package: str
    code: str
    defined: frozenset[str]


def sources(root: Path, module: str) -> list[Source]:
    """Return the main code of a module in all lines of Spark."""
    return [_read(path) for path in sorted((root / module).rglob("*.scala"))]


def _read(path: Path) -> Source:
    code = _STRING.sub(
        lambda text: " ".join(a or b for a, b in _INTERPOLATED.findall(text[0])),
        _COMMENT.sub(" ", path.read_text()),
    )
    defined = frozenset(
        name for marks, name in _DEFINED.findall(code) if not re.search(r"private(?!\[)", marks)
    )
    package = _PACKAGE.search(code)
    return Source(path, package[1] if package else "", code, defined)


def uses(source: Source, own: str) -> Iterator[str]:
    """Yield the packages below `own` that a file names."""
    body = _PACKAGE.sub("", source.code)
    for found in re.finditer(rf"\b{re.escape(own)}((?:\.[a-z]\w*)*)\.(?=[A-Z{{_])", body):
        yield found[1].removeprefix(".")


def misplaced(root: Path) -> Iterator[tuple[Path, str]]:
    """Yield files whose package breaks the order of their module, each with what is wrong."""
    for module, (own, order) in ORDERS.items():
        ranks = {name: rank for rank, name in enumerate(order)}
        for source in sources(root, module):
            package = _below(source.package, own)
            if package is None:
                continue  # the bridge stands in Spark's packages
            if package not in ranks:
                yield source.path, f"package {package} has no place in the order; add it to ORDERS"
                continue
            for used in sorted(set(uses(source, own))):
                if ranks.get(used, len(order)) > ranks[package]:
                    yield (
                        source.path,
                        f"{package or 'the root'} uses {used or 'the root'}, which comes later",
                    )


def crowded(root: Path) -> Iterator[tuple[Path, int]]:
    """Yield folders with more files than anybody reads through."""
    for module in ORDERS:
        files: defaultdict[Path, int] = defaultdict(int)
        for path in (root / module).rglob("*.scala"):
            files[path.parent] += 1
        yield from ((folder, n) for folder, n in sorted(files.items()) if n > MAX_FILES)


def knots(root: Path) -> Iterator[list[str]]:
    """Yield the files that use each other in a circle, where they are more than a pair."""
    for module in ORDERS:
        edges = _file_edges(sources(root, module))
        yield from (sorted(knot) for knot in _circles(edges) if len(knot) > MAX_KNOT)


def graph(root: Path) -> Iterator[str]:
    """Yield what each package uses, short ones side by side; those that use none come first."""
    lowest: list[str] = []
    lines: list[str] = []
    for module, (own, order) in ORDERS.items():
        edges: defaultdict[str, set[str]] = defaultdict(set)
        for source in sources(root, module):
            package = _below(source.package, own)
            if package is not None:
                edges[package] |= {used for used in uses(source, own) if used != package}
        for name in order:
            full = f"{own}.{name}" if name else own
            used = " ".join(u or own for u in order if u in edges[name])
            if used:
                lines.append(f"{full}: {used}")
            else:
                lowest.append(full)
    yield f"use no other: {' '.join(lowest)}"
    yield from _packed(lines)


def _packed(texts: list[str]) -> Iterator[str]:
    line = ""
    for text in texts:
        if line and len(line) + len(text) + 3 > WIDTH:
            yield line
            line = ""
        line = f"{line} | {text}" if line else text
    if line:
        yield line


def _below(package: str, own: str) -> str | None:
    if package == own:
        return ""
    return package.removeprefix(f"{own}.") if package.startswith(f"{own}.") else None


def _file_edges(files: list[Source]) -> dict[str, set[str]]:
    """Return who uses whom, by names: those of the own package, and those that are imported."""
    owners: defaultdict[tuple[str, str], set[str]] = defaultdict(set)
    for source in files:
        for name in source.defined:
            owners[source.package, name].add(source.path.stem)
    edges: dict[str, set[str]] = {source.path.stem: set() for source in files}
    for source in files:
        words = set(_TYPE.findall(source.code))
        seen = {(source.package, word) for word in words}
        for package, what in _IMPORT.findall(source.code):
            names = words if what == "_" else set(re.findall(r"\w+", what))
            seen |= {(package, name) for name in names}
        for package, name in seen:
            if name not in source.defined:
                edges[source.path.stem] |= owners.get((package, name), set()) - {source.path.stem}
    return edges


def _circles(edges: dict[str, set[str]]) -> Iterator[set[str]]:
    """Yield strongly connected parts: of each file, those that it reaches and that reach it."""
    reached = {start: _reach(start, edges) for start in edges}
    done: set[str] = set()
    for start in edges:
        if start not in done:
            part = {start} | {end for end in reached[start] if start in reached[end]}
            done |= part
            yield part


def _reach(start: str, edges: dict[str, set[str]]) -> set[str]:
    found: set[str] = set()
    ahead = [start]
    while ahead:
        fresh = edges[ahead.pop()] - found
        found |= fresh
        ahead += fresh
    return found


if __name__ == "__main__":
    sys.stdout.write("\n".join(graph(Path(__file__).resolve().parents[2])) + "\n")
