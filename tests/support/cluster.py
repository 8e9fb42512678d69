"""A standalone Spark cluster on loopback, from the processes that the pyspark package brings.

Each worker is a host of its own: it has its own address, its own disk for local state, and one
executor with one core. Needs Linux: all of 127.0.0.0/8 is loopback there, and /proc tells which
processes are whose.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import pyspark

from support.processes import LIMIT_S, SMALL_JVM, Daemon, command_of, group, wait_for
from support.session import PATIENT, STATE_STORE, class_path_with_testkit
from support.streams import Arrivals

_SPARK_CLASS = Path(pyspark.__file__).parent / "bin/spark-class"
_DRIVER = Path(__file__).with_name("cluster_driver.py")
_EXECUTOR_CLASS = "org.apache.spark.executor.CoarseGrainedExecutorBackend"

#: A directory for each worker: its executors run in `<worker>/<application>/<number>`.
OWN_DISKS = "/proc/self/cwd/../../state"


class Worker:
    """
    A host with one executor at most.

    Attributes
    ----------
    directory
        Its disk: `state`, if it is told to use `OWN_DISKS`, and the executors' logs.
    """

    def __init__(self, master: str, number: int, directory: Path) -> None:
        self.master, self.host, self.directory = master, f"127.0.0.{number + 2}", directory
        directory.mkdir()
        self.start()

    def start(self) -> None:
        """Start it, or start it again after `kill`."""
        command = ["org.apache.spark.deploy.worker.Worker", "--host", self.host, "--cores", "1"]
        command += ["--memory", "1g", "--webui-port", "0", "--work-dir", str(self.directory)]
        self.daemon = _daemon([*command, self.master], self.directory / "worker.log", self.host)

    def kill(self) -> None:
        """Take the host away, with its executor; its disk stays."""
        self.daemon.kill()

    def stop(self) -> None:
        """Take the host away as a shut-down does: its executor has time to end."""
        executors = self.executors
        self.daemon.process.kill()  # or it would start another
        for executor in executors:
            os.kill(executor, signal.SIGTERM)
        wait_for(f"the end of {executors}", lambda: not self.executors)
        self.daemon.kill()

    @property
    def executors(self) -> list[int]:
        """Ids of the executors' processes that run here."""
        return [pid for pid in group(self.daemon.process.pid) if _EXECUTOR_CLASS in command_of(pid)]


class Cluster:
    """
    A master and its workers.

    Parameters
    ----------
    directory
        Where everything lies: logs, disks, what the driver needs.
    workers
        How many.
    """

    def __init__(self, directory: Path, *, workers: int) -> None:
        self.directory = directory
        self.workers: list[Worker] = []
        self.applications: list[Application] = []
        command = ["org.apache.spark.deploy.master.Master", "--host", "127.0.0.1"]
        command += ["--port", "0", "--webui-port", "0"]
        self.master = _daemon(command, directory / "master.log", "127.0.0.1")
        try:
            self.url = self.master.said(r"Starting Spark master at (spark://\S+)")
            for i in range(workers):
                self.workers.append(Worker(self.url, i, directory / f"worker-{i}"))
        except BaseException:
            self.stop()
            raise

    def worker_of(self, executor: int) -> Worker:
        """Where an executor's process runs."""
        return next(worker for worker in self.workers if executor in worker.executors)

    def kill(self, executor: int) -> None:
        """Kill an executor's process, and wait until it is dead; its worker starts another."""
        worker = self.worker_of(executor)
        os.kill(executor, signal.SIGKILL)
        wait_for(f"the end of {executor}", lambda: executor not in worker.executors)

    def start(self, *, awaits: bool = True, **settings: object) -> Application:
        """
        Start an application.

        Parameters
        ----------
        awaits
            Whether to wait until it has an executor on each worker that runs.
        **settings
            Of its session. `configure` sets Statemark's, unless the provider's class is among them.
        """
        workers = sum(worker.daemon.process.poll() is None for worker in self.workers)
        conf = {
            "spark.master": self.url,
            "spark.driver.host": "127.0.0.1",
            **PATIENT,
            "spark.ui.enabled": False,
            "spark.ui.showConsoleProgress": False,
            "spark.cores.max": workers,
            "spark.executor.cores": 1,
            "spark.executor.memory": "768m",
            "spark.executor.extraJavaOptions": SMALL_JVM,
            "spark.scheduler.minRegisteredResourcesRatio": 1.0,
            # Plans of a few rows are done before Java code of them is compiled.
            "spark.sql.codegen.wholeStage": False,
            "spark.sql.codegen.factoryMode": "NO_CODEGEN",
            "spark.sql.session.timeZone": "UTC",
            "spark.sql.warehouse.dir": self.directory / "warehouse",
            **settings,
        }
        application = Application(self, {key: str(value) for key, value in conf.items()})
        self.applications.append(application)
        if awaits:
            application.call("await_executors", count=workers)
        return application

    def stop(self) -> None:
        """End every process of it."""
        for application in self.applications:
            application.daemon.kill()
        for worker in self.workers:
            worker.kill()
        self.master.kill()


@dataclass(frozen=True)
class Results:
    """
    Rows in the order of their keys: key, number of events, sum, last id.

    Attributes
    ----------
    got
        The last row that the query has emitted for each key.
    wanted
        What a batch makes of the same input.
    late
        How many events of a key came into its state by an attempt that was not a task's first.
    partitions
        Where each key's state is.
    """

    got: list[list[object]]
    wanted: list[list[object]]
    late: dict[str, int]
    partitions: dict[str, int]


class Application:
    """
    A driver as a child process (`cluster_driver`), with one query at a time.

    Parameters
    ----------
    cluster
        Where its executors run.
    conf
        Settings of the session.
    """

    def __init__(self, cluster: Cluster, conf: dict[str, str]) -> None:
        number = len(cluster.applications)
        local_dir = conf.pop(f"{STATE_STORE}.statemark.localDir", OWN_DISKS)
        self.daemon = Daemon(
            [sys.executable, str(_DRIVER), local_dir, json.dumps(conf)],
            cluster.directory / f"driver-{number}.log",
            {
                "PYSPARK_PYTHON": sys.executable,
                "SPARK_LOCAL_IP": "127.0.0.1",
                **class_path_with_testkit(),
            },
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def call(self, method: str, **arguments: object) -> Any:
        """Have the driver do something, and return its answer."""
        process = self.daemon.process
        assert process.stdin
        assert process.stdout
        request = json.dumps([method, arguments], default=str)
        with contextlib.suppress(BrokenPipeError):  # an ended driver shows below
            print(request, file=process.stdin, flush=True)
        with selectors.DefaultSelector() as selector:
            selector.register(process.stdout, selectors.EVENT_READ)
            assert selector.select(LIMIT_S), f"no answer to {method}; see {self.daemon.log}"
        answer = process.stdout.readline()
        assert answer, f"the driver ended at {method}; see {self.daemon.log}"
        error, value = json.loads(answer)
        assert not error, f"{method} failed in the driver:\n{error}"
        return value

    def start(self, stream: Stream, *, partitions: int, checkpoint_format: str) -> None:
        """Start a query."""
        self.call(
            "start",
            directory=stream.directory,
            partitions=partitions,
            checkpoint_format=checkpoint_format,
        )

    def check(self) -> bool:
        """Fail if the query has failed."""
        self.call("check")
        return True

    def progress(self) -> list[dict[str, Any]]:
        """Batches of the run: number, metrics of the operator."""
        return list(self.call("progress"))

    def finish(self) -> list[dict[str, Any]]:
        """Let the query process all that has arrived, stop it, and return its progress."""
        return list(self.call("finish"))

    def results(self, stream: Stream) -> Results:
        """Read what a query has emitted, and compute the same as a batch."""
        return Results(**self.call("results", directory=stream.directory))

    def end(self) -> None:
        """Stop the session, as a job that comes to its end does."""
        self.call("end")
        assert self.daemon.process.stdin
        self.daemon.process.stdin.close()
        self.daemon.process.wait(LIMIT_S)


class Task(NamedTuple):
    """
    An attempt of a stateful task, and the id of its executor's process.

    Attributes
    ----------
    gate
        `in` before the store commits, `out` after it.
    """

    gate: str
    batch: int
    partition: int
    attempt: int
    pid: int = 0


@dataclass
class Gates:
    """
    Gates of a query's tasks: see `statemark.testkit.TaskGate`.

    Attributes
    ----------
    directory
        Of the files by which they are held.
    """

    directory: Path

    def __post_init__(self) -> None:
        for name in ("seen", "hold"):
            (self.directory / name).mkdir(parents=True)

    def tasks(self) -> list[Task]:
        """All attempts that reached a gate, for each gate."""
        found = [file.name.split("-") for file in (self.directory / "seen").iterdir()]
        return [Task(gate, *map(int, numbers)) for gate, *numbers in found]

    def hold(self, task: Task) -> None:
        """Let an attempt wait at a gate until it is released or killed."""
        self._hold(task).touch()

    def release(self, task: Task) -> None:
        """Let it go."""
        self._hold(task).unlink()

    def _hold(self, task: Task) -> Path:
        return self.directory / "hold" / "-".join(str(part) for part in task[:4])


@dataclass
class Stream(Gates):
    """
    What a query reads and writes, and the gates of its tasks.

    Attributes
    ----------
    directory
        Of all that.
    """

    arrivals: Arrivals = field(init=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.arrivals = Arrivals(self.directory / "events")

    @property
    def committed(self) -> int:
        """The last batch that the query has committed, -1 for none."""
        commits = (self.directory / "checkpoint/commits").glob("[0-9]*")
        return max((int(file.name) for file in commits), default=-1)


def logs(cluster: Path) -> list[Path]:
    """Logs in a cluster's directory: of master, workers, drivers and executors, the newest last."""
    patterns = ("*.log", "worker-*/*.log", "worker-*/app-*/*/stderr")
    found = [log for pattern in patterns for log in cluster.glob(pattern)]
    return sorted(found, key=lambda log: log.stat().st_mtime)


def _daemon(command: list[str], log: Path, host: str) -> Daemon:
    environment = {
        "SPARK_LOCAL_IP": host,
        "SPARK_LOCAL_DIRS": str(log.parent / "tmp"),
        "SPARK_DAEMON_MEMORY": "192m",
        "SPARK_DAEMON_JAVA_OPTS": SMALL_JVM,
        "PYSPARK_PYTHON": sys.executable,
        # Executors have what their worker has.
        **class_path_with_testkit(),
    }
    return Daemon([str(_SPARK_CLASS), *command], log, environment)
