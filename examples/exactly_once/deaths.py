"""Kill a job's executors, its driver and its broker in the middle of batches, start it again."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from confluent_kafka import Consumer, KafkaException, TopicPartition
from runner import archives
from support.brokers import client_settings
from support.processes import Daemon, command_of, group, wait_for
from support.session import LINE, ROOT

if TYPE_CHECKING:
    from collections.abc import Callable

    from support.brokers import Brokers

HERE = Path(__file__).resolve().parent
#: Who dies, each in the first batch after the one of that number, when it has written rows.
DEATHS = (
    (1, "executor"),
    (4, "driver"),
    (7, "broker"),
    (10, "executor"),
    (13, "driver"),
)
#: A job that fails by itself more often than that has another problem.
MOST_RUNS = 12
#: Of the output.
PARTITIONS = 3
#: What the command of such a process has in it.
_CLASSES = {"executor": "CoarseGrainedExecutorBackend", "driver": "SparkSubmit", "broker": "kafka"}
#: Options of driver and executors: with an archive of classes, where tests have left one.
JAVA = " ".join(
    [archives.SHORT_LIVED, *archives.flags(archives.pyspark(LINE, ROOT / "target/archives"))]
)


class Victim:
    """
    A job with its checkpoint and its output topic, started as often as it takes.

    Attributes
    ----------
    killed
        How often each kind was killed.
    runs
        How often the job was started.
    """

    def __init__(
        self, asked: dict[str, Any], work: Path, brokers: Brokers, say: Callable[[str], None]
    ) -> None:
        self.work, self.brokers, self.say = work, brokers, say
        self.checkpoint, self.output = Path(asked["checkpoint"]), str(asked["output"])
        self._asked = asked
        self.killed = dict.fromkeys(("executor", "driver", "broker"), 0)
        self.runs = 0
        self._victims: list[int] = []
        # Its default is read_committed, whose end says nothing of rows that were only sent.
        level = {"group.id": "looks at the end", "isolation.level": "read_uncommitted"}
        self._log = Consumer({**client_settings(brokers.bootstrap), **level})
        self._driver = self._start()

    def run(self) -> float:
        """Let it process all input while others die; return seconds."""
        begun = time.monotonic()
        try:
            for batch, kind in DEATHS:
                if not self._await_rows_behind(batch, kind):
                    break
                getattr(self, f"_kill_{kind}")()
                at = self.newest("offsets")
                self.killed[kind] += 1
                self.say(f"batch {at:2}: {kind} killed, {time.monotonic() - begun:.0f} s")
                if kind == "driver":
                    self._driver = self._start()
            while not self._is_over():
                time.sleep(0.1)
        finally:
            self._driver.kill()
            self._log.close()
        self.say(f"all input is processed, {time.monotonic() - begun:.0f} s")
        return time.monotonic() - begun

    def newest(self, log: str) -> int:
        """Return the last batch of a log of the checkpoint, -1 before the first."""
        return max((int(file.name) for file in (self.checkpoint / log).glob("[0-9]*")), default=-1)

    def _await_rows_behind(self, batch: int, kind: str) -> bool:
        """Wait until a later batch has written rows and has not ended; False where all is over."""
        end, before = 0, -2
        while not self._is_over():
            committed = self.newest("commits")
            if committed != before:
                # Looked for now, as the batch is soon over when it has written its first row.
                self._victims = self._jvms(kind)
                before, end = committed, self._end()
            elif committed >= batch and self.newest("offsets") > committed and self._end() > end:
                return True
            time.sleep(0.002)
        return False

    def _end(self) -> int:
        """Return the end of the output's log, all partitions together, of open transactions too."""

        def found() -> list[int]:
            # A broker that has just started does not lead at once, and a client may not know.
            with contextlib.suppress(KafkaException):
                return [
                    self._log.get_watermark_offsets(TopicPartition(self.output, n), timeout=60)[1]
                    for n in range(PARTITIONS)
                ]
            return []

        return sum(wait_for("the end of the output", found))

    def _is_over(self) -> bool:
        """Whether the job has ended well; one that has failed is started again."""
        code = self._driver.process.poll()
        if code is None or code == 0:
            return code == 0
        assert self.runs < MOST_RUNS, f"the job fails again and again: see {self._driver.log}"
        self.say(f"the job has failed (exit code {code}): started again")
        self._driver.kill()
        self._driver = self._start()
        return False

    def _start(self) -> Daemon:
        self.runs += 1
        self.say(f"run {self.runs} of the job starts")
        command = [sys.executable, str(HERE / "driver.py")]
        command.append(json.dumps({**self._asked, "run": self.runs}))
        environment = {"PYTHONPATH": str(HERE), "SPARK_SUBMIT_OPTS": JAVA}
        return Daemon(command, self.work / f"run-{self.runs}.log", environment)

    def _kill_executor(self) -> None:
        os.kill(self._victims[0], signal.SIGKILL)

    def _kill_driver(self) -> None:
        os.kill(self._victims[0], signal.SIGKILL)
        self._driver.kill()

    def _kill_broker(self) -> None:
        (node,) = self.brokers.running
        self.brokers.kill(node)
        self.brokers.start(node)
        self.brokers.wait()

    def _jvms(self, kind: str) -> list[int]:
        return [pid for pid in group(self._driver.process.pid) if _CLASSES[kind] in command_of(pid)]
