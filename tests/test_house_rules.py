"""Rules of the house that no compiler checks.

Each rule reads a source tree and yields one line for each violation: file, line, what is wrong, and
what to use instead. The second half of this file plants a violation of every rule in a tree of its
own, so that a rule that finds nothing any more is noticed.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from runner import reverted
from support import packages

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Rule = Callable[[Path], Iterator[str]]

ROOT = Path(__file__).resolve().parents[1]

MAX_LINES = 500
MAX_PYTHON_LINES = 300
MAX_PROSE = 120
CORE = "jvm/core/src/main/scala"
KAFKA = "jvm/kafka/src/main/scala"
SPARK = "jvm/spark/src/main/scala"
SHIMS = "jvm/spark/src/main/scala-shims"
SINK = "jvm/sink/src/main/scala"
PYTHON = "python/src"
CLOCK = f"{CORE}/statemark/common/Clock.scala"
HOME_LOCK = f"{SPARK}/statemark/spark/local/DirectoryLock.scala"
#: Packages whose docs a newcomer can read.
READABLE = (
    CORE,
    *(
        f"{SPARK}/statemark/spark/{package}"
        for package in (
            *("errors", "checkpoint", "changelog", "local", "snapshot", "load", "reads", "live"),
        )
    ),
)
JVM_MODULE = f"{PYTHON}/statemark/_jvm.py"
INVARIANTS = "ARCHITECTURE.md"

#: Built or fetched, not written here.
_SKIPPED = {"target", "jars", "results", "build", "dist", "__pycache__"}
_TEXT = {".conf", ".md", ".properties", ".py", ".sbt", ".scala", ".sh", ".toml", ".yml", ".yaml"}
_SCRIPTS = ("Makefile", "build.sbt", "docker-compose.yml", "python/pyproject.toml", "ruff.toml")
_SCRIPT_FOLDERS = (".ci", "bin", "conf", "project")

_COMMENT = re.compile(r"/\*.*?\*/|(?<![:\"])//[^\n]*", re.DOTALL)
_DOC = re.compile(
    r"/\*\*\s+(What|Which|Who|Whoever|Whether|That|Those|These|Such|As|Of|How|Somebody|Nobody)\b"
)
_STRING = re.compile(r'"""(?:.|\n)*?"""|"(?:\\.|[^"\\\n])*"')
#: What opens a scope, by the keyword before its brace, and what is declared in one.
_SCOPES = re.compile(r"\b(?:object|class|trait|def|val|var)\b|[{}]")
_PRIVATE = re.compile(r"\bprivate\b(?!\[)|\bprivate\[this\]")
# In two parts: this file is read by its own rule.
_UNOWNED = re.compile(r"\b(TO" + r"DO|FIX" + r"ME)\b(?!\(#\d+\))")
_HOST = re.compile(r"https?://(repo|repo1|registry|files|maven|pypi|plugins|packages)\b[\w.-]*")
# The module `statemark._jvm` itself may be imported and called.
_GATEWAY = re.compile(r"\bpy4j\b|(?<!statemark)\._jvm\b|\b_gateway\b|\._jsc\b|\._jsparkSession\b")


def sleeps(root: Path) -> Iterator[str]:
    yield from _found(
        root, r"\bThread\s*\.\s*sleep\b", "wait on a lock, a future or a latch instead"
    )


def clocks(root: Path) -> Iterator[str]:
    pattern = r"\bSystem\s*\.\s*(currentTimeMillis|nanoTime)\b"
    instead = "take a statemark.common.Clock and call its epochMs or nanos instead"
    yield from _found(root, pattern, instead, allowed=CLOCK)


def prints(root: Path) -> Iterator[str]:
    pattern = r"\bprint(ln|f)?\s*\(|\bSystem\s*\.\s*(out|err)\b"
    yield from _found(root, pattern, "use an slf4j logger, or nothing in core, instead")


def randomness(root: Path) -> Iterator[str]:
    pattern = r"\bscala\.util\.Random\b|\bscala\.util\.\{[^}]*\bRandom\b|\bMath\.random\b"
    yield from _found(root, pattern, "pass what has to differ in as an argument instead")


def channels(root: Path) -> Iterator[str]:
    pattern = r"\bFileChannel\b|\bnewByteChannel\b|\.getChannel\b"
    instead = "an interrupt closes a channel; use a RandomAccessFile or a java.io stream instead"
    yield from _found(root, pattern, instead, allowed=HOME_LOCK)


def shared_vars(root: Path) -> Iterator[str]:
    for path in _scala(root, (CORE, KAFKA, SPARK, SHIMS, SINK)):
        for number, line in _vars_of_objects(path):
            yield (
                f"{path.relative_to(root)}:{number}: {line}; make it private, or where others set "
                "it a value of JvmState instead, which JvmState.clear() brings back"
            )


def long_files(root: Path) -> Iterator[str]:
    most = dict.fromkeys(_scala(root), MAX_LINES)
    most |= dict.fromkeys(sorted((root / PYTHON).rglob("*.py")), MAX_PYTHON_LINES)
    for path, limit in most.items():
        lines = len(path.read_text().splitlines())
        if lines > limit:
            where = path.relative_to(root)
            yield f"{where}: {lines} lines; split it by what it does, at most {limit} a file"


def core_alone(root: Path) -> Iterator[str]:
    pattern = r"\borg\.apache\.(spark|kafka)\b|^\s*import\s+kafka\."
    instead = (
        "core knows neither Spark nor Kafka; put a trait here and its use in jvm/spark instead"
    )
    yield from _found(root, pattern, instead, folders=(CORE,))


def sink_alone(root: Path) -> Iterator[str]:
    instead = (
        "the core of the sink knows no Spark; put a trait here and its use in jvm/spark instead"
    )
    yield from _found(root, r"\borg\.apache\.spark\b", instead, folders=(KAFKA,))


def one_bridge(root: Path) -> Iterator[str]:
    there = sorted((root / SPARK / "org/apache/spark").rglob("*.scala"))
    for path in _scala(root, (SHIMS,)):
        if path.name != "BridgeShims.scala" and "package org.apache.spark" in path.read_text():
            yield (
                f"{path.relative_to(root)}: stands in a package of Spark's; move members to "
                "BridgeShims.scala, everything else to statemark.spark"
            )
    names = ", ".join(path.name for path in there) or "none"
    if len(there) != 1:
        yield (
            f"{SPARK}/org/apache/spark: exactly one file may stand in a package of Spark's, found "
            f"{names}; move members to StatemarkBridge.scala, everything else to statemark.spark"
        )


def package_order(root: Path) -> Iterator[str]:
    for path, wrong in packages.misplaced(root):
        yield (
            f"{path.relative_to(root)}: {wrong}; move the type down, or pass the call in as a "
            "function instead (the order: tests/support/packages.py)"
        )


def crowded_folders(root: Path) -> Iterator[str]:
    for folder, files in packages.crowded(root):
        yield (
            f"{folder.relative_to(root)}: {files} files; split it by what they do, at most "
            f"{packages.MAX_FILES} a folder"
        )


def file_knots(root: Path) -> Iterator[str]:
    for knot in packages.knots(root):
        yield (
            f"{', '.join(knot)}: use each other in a circle; move what all of them need into a "
            "file of its own"
        )


def unclear_docs(root: Path) -> Iterator[str]:
    for folder in READABLE:
        for path in sorted((root / folder).rglob("*.scala")):
            text = path.read_text()
            for doc in _DOC.finditer(text):
                number = text.count("\n", 0, doc.start()) + 1
                yield (
                    f"{path.relative_to(root)}:{number}: a doc begins with '{doc[1]}'; begin "
                    "with a verb, or for a type or value with a noun of the glossary, instead "
                    "(CONTRIBUTING.md, Words)"
                )


def wide_prose(root: Path) -> Iterator[str]:
    for path in _files(root):
        if path.suffix != ".md":
            continue
        for number, line in _prose(path):
            if len(line) > MAX_PROSE:
                yield (
                    f"{path.relative_to(root)}:{number}: {len(line)} characters; wrap it at "
                    f"{MAX_PROSE} instead"
                )


def download_hosts(root: Path) -> Iterator[str]:
    scripts = [root / name for name in _SCRIPTS]
    scripts += [p for f in _SCRIPT_FOLDERS for p in _files(root / f)]
    scripts += [p for p in _files(root) if p.suffix == ".sh"]
    for path in sorted({p for p in scripts if p.is_file()}):
        for number, line in enumerate(_lines(path), 1):
            if host := _HOST.search(line):
                yield (
                    f"{path.relative_to(root)}:{number}: names the download host {host[0]}; use "
                    "coordinates and the machine's own Maven, pip and sbt settings instead"
                )


def unowned_tasks(root: Path) -> Iterator[str]:
    for path in _files(root):
        if path.suffix not in _TEXT and path.name != "Makefile":
            continue
        for number, line in enumerate(_lines(path), 1):
            if word := _UNOWNED.search(line):
                yield (
                    f"{path.relative_to(root)}:{number}: {word[1]} without an issue; write "
                    f"{word[1]}(#123) instead, or do it"
                )


def cited_invariants(root: Path) -> Iterator[str]:
    named = re.findall(r"\bI(?:1[01]|[1-9])\b", (root / INVARIANTS).read_text())
    here = Path(__file__).name
    sources = [
        path.read_text()
        for folder in ("jvm", "python", "tests")
        for path in _files(root / folder)
        if path.suffix in {".scala", ".py"} and path.name != here
    ]
    for name in sorted(set(named), key=lambda n: int(n[1:])):
        if not any(re.search(rf"\b{name}\b", text) for text in sources):
            yield (
                f"{INVARIANTS}: no code or test cites {name}; cite it where it is kept or tested, "
                "or take it out of the document instead"
            )


def one_gateway(root: Path) -> Iterator[str]:
    for path in sorted((root / PYTHON).rglob("*.py")):
        if path == root / JVM_MODULE:
            continue
        for number, line in enumerate(_lines(path), 1):
            if call := _GATEWAY.search(line):
                yield (
                    f"{path.relative_to(root)}:{number}: {call[0]} reaches into the JVM; add a "
                    "function to statemark._jvm and call that instead"
                )


def stale_patches(root: Path) -> Iterator[str]:
    found = [
        (faults, number, files)
        for stress, faults in reverted.FAULTS.items()
        for number, files in reverted.patches(root, stress).items()
    ]
    for faults, number, files in found:
        command = ["git", "apply", "--check", *map(str, files)]
        said = subprocess.run(command, cwd=root, check=False, capture_output=True, text=True)
        if said.returncode or number not in faults:
            yield (
                f"{files[0].relative_to(root)}: does not apply; make it again from the code of now "
                f"instead, for one of {', '.join(faults)}: {said.stderr.strip()}"
            )


RULES = [
    sleeps,
    clocks,
    prints,
    randomness,
    channels,
    shared_vars,
    long_files,
    core_alone,
    sink_alone,
    one_bridge,
    package_order,
    crowded_folders,
    file_knots,
    unclear_docs,
    wide_prose,
    download_hosts,
    unowned_tasks,
    cited_invariants,
    one_gateway,
    stale_patches,
]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_house_rule(rule: Rule) -> None:
    if rule is cited_invariants and not (ROOT / INVARIANTS).is_file():
        pytest.skip(f"{INVARIANTS} is not written yet")
    violations = list(rule(ROOT))
    assert not violations, "\n" + "\n".join(violations)


# ---- the rules find what they are for

_BRIDGE = f"{SPARK}/org/apache/spark/sql/execution/streaming/state/StatemarkBridge.scala"
_CLEAN = {
    CLOCK: "package statemark.common\nobject Clock { def nanos() = System.nanoTime() }\n",
    f"{CORE}/statemark/engine/A.scala": (
        "package statemark.engine\nimport statemark.common.Clock\n"
        "/** Not like Thread.sleep in Spark. */\nclass A // println(1), org.apache.spark\n"
    ),
    f"{SHIMS}/spark-4.0/BridgeShims.scala": "package org.apache.spark.sql\ntrait BridgeShims\n",
    f"{CORE}/statemark/Store.scala": "package statemark\nimport statemark.engine._\n",
    f"{SPARK}/statemark/spark/process/Values.scala": (
        "package statemark.spark.process\nobject Values {\n  @volatile private var one = 1\n"
        "  private val closed = () => {\n    var two = 2\n  }\n  final class Counter {\n"
        '    var count = 0\n  }\n  def text: String = {\n    var i = 0\n    "object O { var x }"\n'
        "  }\n}\n"
    ),
    HOME_LOCK: "object DirectoryLock { def lock() = file.getChannel.tryLock() }\n",
    _BRIDGE: "package org.apache.spark.sql.execution.streaming.state\nobject StatemarkBridge\n",
    JVM_MODULE: "from py4j import java_gateway\n",
    f"{PYTHON}/statemark/jars.py": "from statemark import _jvm\n_jvm.started()\n",
    "bin/run": "mvn dependency:copy -Dartifact=a:b:1 # https://example.org\n",
    INVARIANTS: "I4: a rollback reads nothing.\n",
    "docs/wide.md": (
        f"| {'cell ' * 30}|\n\n```\n{'code ' * 30}\n```\n\n    {'code ' * 30}\n    {'more ' * 30}\n"
    ),
    "tests/test_it.py": '"""I4."""\n# TO' + "DO(#12) more\n",
}
_STALE_PATCH = """\
--- a/bin/run
+++ b/bin/run
@@ -1 +1 @@
-another line
+and its change
"""
_PLANTED = [
    (stale_patches, f"{reverted.folder('stress-kafka')}/1-stale.patch", _STALE_PATCH),
    (stale_patches, f"{reverted.folder('stress')}/0-unknown.patch", _STALE_PATCH),
    (sleeps, f"{SPARK}/statemark/spark/B.scala", "object B { Thread.sleep(10) }"),
    (clocks, f"{CORE}/statemark/engine/B.scala", "object B { val t = System.nanoTime() }"),
    (clocks, f"{SPARK}/statemark/spark/Clock.scala", "class C { System.currentTimeMillis() }"),
    (prints, f"{CORE}/statemark/engine/B.scala", 'object B { println("here") }'),
    (prints, f"{SPARK}/statemark/spark/B.scala", 'object B { System.err.append("here") }'),
    (randomness, f"{SPARK}/statemark/spark/B.scala", "import scala.util.Random"),
    (randomness, f"{SPARK}/statemark/spark/B.scala", "import scala.util.{Random, Try}"),
    (channels, f"{CORE}/statemark/engine/B.scala", "FileChannel.open(file.toPath)"),
    (channels, f"{SPARK}/statemark/spark/B.scala", "new RandomAccessFile(f, mode).getChannel"),
    (
        shared_vars,
        f"{SPARK}/statemark/spark/B.scala",
        "object B {\n  val a = 1\n  @volatile private[spark] var hook = () => a\n}",
    ),
    (
        shared_vars,
        f"{SHIMS}/spark-4.0/B.scala",
        "class B {\n  var mine = 1\n}\nobject B { object Inner { var all = 1 } }",
    ),
    (shared_vars, f"{SINK}/statemark/kafka/sink/B.scala", "private object B { var b = 1 }"),
    (long_files, f"{CORE}/statemark/engine/B.scala", "//\n" * (MAX_LINES + 1)),
    (long_files, f"{PYTHON}/statemark/b.py", "#\n" * (MAX_PYTHON_LINES + 1)),
    (core_alone, f"{CORE}/statemark/engine/B.scala", "import org.apache.spark.TaskContext"),
    (core_alone, f"{CORE}/statemark/engine/B.scala", "class B(p: org.apache.kafka.clients.P)"),
    (sleeps, f"{KAFKA}/statemark/kafka/B.scala", "object B { Thread.sleep(10) }"),
    (sink_alone, f"{KAFKA}/statemark/kafka/B.scala", "import org.apache.spark.TaskContext"),
    (one_bridge, f"{SPARK}/org/apache/spark/Second.scala", "package org.apache.spark"),
    (one_bridge, f"{SHIMS}/spark-4.0/B.scala", "package org.apache.spark.sql"),
    (sleeps, f"{SHIMS}/spark-4.0/B.scala", "object B { Thread.sleep(10) }"),
    (
        package_order,
        f"{CORE}/statemark/common/B.scala",
        "package statemark.common\nimport statemark.engine.RocksEngine",
    ),
    (
        package_order,
        f"{CORE}/statemark/engine/B.scala",
        "package statemark.engine\nclass B(t: statemark.transaction.T)",
    ),
    (
        package_order,
        f"{CORE}/statemark/transaction/B.scala",
        "package statemark.transaction\nimport statemark.IsolationLevel",
    ),
    (package_order, f"{CORE}/statemark/query/B.scala", "package statemark.query"),
    (
        package_order,
        f"{SPARK}/statemark/spark/reads/B.scala",
        "package statemark.spark.reads\nimport statemark.spark.live.LiveLookup",
    ),
    (
        package_order,
        f"{SHIMS}/spark-4.0/statemark/spark/offline/cli/B.scala",
        "package statemark.spark.offline.cli\nimport statemark.spark.offline.verify.Finding",
    ),
    (unclear_docs, f"{CORE}/statemark/engine/B.scala", "/** Whether it is. */ class B"),
    (unclear_docs, f"{CORE}/statemark/B.scala", "object B {\n  /** As [[get]], but\n    * later."),
    (unclear_docs, f"{SPARK}/statemark/spark/live/B.scala", "/** What a read\n  * shows. */"),
    (wide_prose, "docs/a.md", "word " * 30),
    (wide_prose, "python/README.md", "```\ncode\n```\n- " + "word " * 30),
    (download_hosts, "bin/get", "curl https://repo.example.org/x.jar"),
    (download_hosts, "python/pyproject.toml", 'index = "https://pypi.example.org/simple"'),
    (download_hosts, "tests/fetch.sh", "wget http://files.example.org/x"),
    (unowned_tasks, "docs/a.md", "TO" + "DO: write this"),
    (unowned_tasks, f"{CORE}/statemark/engine/B.scala", "// FIX" + "ME later"),
    (cited_invariants, INVARIANTS, "I4 and I10."),
    (one_gateway, f"{PYTHON}/statemark/session.py", "SparkContext._jvm.java.lang.System"),
    (one_gateway, f"{PYTHON}/statemark/session.py", "import py4j.java_gateway"),
]


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A source tree that breaks no rule."""
    for name, text in _CLEAN.items():
        _write(tmp_path / name, text)
    return tmp_path


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_clean_tree_has_no_violation(rule: Rule, tree: Path) -> None:
    assert list(rule(tree)) == []


@pytest.mark.parametrize(
    ("rule", "path", "text"),
    _PLANTED,
    ids=lambda part: part[:60] if isinstance(part, str) else part.__name__,
)
def test_planted_violation_is_found(rule: Rule, path: str, text: str, tree: Path) -> None:
    _write(tree / path, text + "\n")
    violations = list(rule(tree))
    assert len(violations) == 1
    where = f"{SPARK}/org/apache/spark" if path.startswith(f"{SPARK}/org") else path
    assert violations[0].startswith(where)
    assert re.search(r"instead|split|move|add it", violations[0]), "it says what to do"


def test_files_that_use_each_other_in_a_circle_are_found(tree: Path) -> None:
    for name, used in ("One", "Two"), ("Two", "Three"), ("Three", "One"):
        text = f"package statemark.spark.rows\nclass {name}(next: {used})\n"
        _write(tree / f"{SPARK}/statemark/spark/rows/{name}.scala", text)
    assert [v.split(":")[0] for v in file_knots(tree)] == ["One, Three, Two"]
    # A pair is a class and what was cut out of it.
    _write(tree / f"{SPARK}/statemark/spark/rows/Three.scala", "package statemark.spark.rows\n")
    assert not list(file_knots(tree))


def test_a_crowded_folder_is_found(tree: Path) -> None:
    folder = f"{SPARK}/statemark/spark/rows"
    for number in range(packages.MAX_FILES):
        _write(tree / f"{folder}/R{number}.scala", "package statemark.spark.rows\n")
    assert not list(crowded_folders(tree))
    _write(tree / f"{folder}/More.scala", "package statemark.spark.rows\n")
    assert [v.split(":")[0] for v in crowded_folders(tree)] == [folder]


def test_missing_bridge_is_found(tree: Path) -> None:
    (tree / _BRIDGE).unlink()
    assert [v for v in one_bridge(tree) if "found none" in v]


def test_every_rule_has_a_planted_violation() -> None:
    in_several_files = {crowded_folders, file_knots}
    assert {rule for rule, _, _ in _PLANTED} | in_several_files == set(RULES)


# ---- reading sources


def _found(
    root: Path,
    pattern: str,
    instead: str,
    *,
    folders: tuple[str, ...] = (CORE, KAFKA, SPARK, SHIMS),
    allowed: str = "",
) -> Iterator[str]:
    """Matches of a pattern in Scala code, comments aside."""
    for path in _scala(root, folders):
        if path == root / allowed:
            continue
        for number, line in _code(path):
            if match := re.search(pattern, line):
                yield f"{path.relative_to(root)}:{number}: {match[0].strip()}; {instead}"


def _scala(root: Path, folders: tuple[str, ...] = (CORE, KAFKA, SPARK, SHIMS)) -> list[Path]:
    return sorted(path for folder in folders for path in (root / folder).rglob("*.scala"))


def _code(path: Path) -> Iterator[tuple[int, str]]:
    """Numbered lines without comments."""
    text = _COMMENT.sub(lambda comment: "\n" * comment[0].count("\n"), path.read_text())
    yield from enumerate(text.splitlines(), 1)


def _vars_of_objects(path: Path) -> Iterator[tuple[int, str]]:
    """Variables that are members of an object and that others see, with their lines."""
    text = "\n".join(line for _, line in _code(path))
    text = _STRING.sub(lambda string: "\n" * string[0].count("\n"), text)
    scopes: list[bool] = []  # for each open brace, whether it is that of an object
    opens = ""  # the keyword that the next brace belongs to
    for number, line in enumerate(text.splitlines(), 1):
        begin = 0
        for word in _SCOPES.finditer(line):
            if word[0] == "var" and scopes and scopes[-1]:
                if not _PRIVATE.search(line, begin, word.start()):
                    yield number, line.strip()
            elif word[0] == "{":
                scopes.append(opens == "object")
            elif word[0] == "}" and scopes:
                scopes.pop()
            if word[0] in "{}":
                opens, begin = "", word.end()
            else:
                opens = word[0]


def _files(folder: Path) -> list[Path]:
    """All files below that people wrote; hidden folders count only as `folder` itself."""
    if not folder.is_dir():
        return []
    found: list[Path] = []
    for path in sorted(folder.iterdir()):
        if path.is_dir():
            is_ours = path.name not in _SKIPPED and not path.name.startswith(".")
            found += _files(path) if is_ours else []
        else:
            found.append(path)
    return found


def _prose(path: Path) -> Iterator[tuple[int, str]]:
    """Numbered lines of Markdown that are neither of a table nor code."""
    is_fenced, before = False, ""
    for number, line in enumerate(_lines(path), 1):
        is_fence = line.lstrip().startswith("```")
        # Code by its indent: after an empty line, or after such code.
        is_indented = line.startswith("    ") and not before.strip()
        if not (is_fenced or is_fence or is_indented or line.lstrip().startswith("|")):
            yield number, line
        is_fenced ^= is_fence
        before = "" if is_indented else line


def _lines(path: Path) -> list[str]:
    return path.read_text(errors="replace").splitlines()


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
