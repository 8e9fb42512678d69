"""Kafka brokers on loopback: processes of their own, which tests kill and start again.

Each node is broker and controller, and has 5 to 10 s to itself before a client sees it: tests share
one cluster and have topics of their own (`support.topics`). Settings make a restart short: a node
that was killed is forgotten after a second, and a first transaction prepares few partitions.
"""

from __future__ import annotations

import base64
import contextlib
import fcntl
import shutil
import socket
import subprocess
import tempfile
import uuid
from dataclasses import dataclass
from pathlib import Path
from random import SystemRandom
from typing import TYPE_CHECKING, Any

import pytest

from support.processes import LIMIT_S, Daemon, wait_for
from support.session import LINE

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from typing_extensions import Self

_ROOT = Path(__file__).resolve().parents[2]
_LISTS = _ROOT / "jvm/brokers/target/jars"
_ARCHIVES = _ROOT / "target/archives"
_HOST = "127.0.0.1"
#: Below those that systems hand out by themselves, so that a node that is down keeps its own.
_PORTS = range(20000, 30000)
_METADATA_TIMEOUT_S = 2
_TAIL_LINES = 30
#: A heap that grows when it has to and shrinks again; code that is compiled fast.
_JAVA = (
    "-Xms32m",
    "-Xmx384m",
    "-XX:+UseSerialGC",
    "-XX:MinHeapFreeRatio=10",
    "-XX:MaxHeapFreeRatio=20",
    "-XX:TieredStopAtLevel=1",
    "-Xlog:cds=off",
    "-Xlog:cds+dynamic=off",
    "-Dorg.apache.logging.log4j.level=INFO",
)
_COMMON = {
    "process.roles": "broker,controller",
    "listener.security.protocol.map": "BROKER:PLAINTEXT,CONTROLLER:PLAINTEXT",
    "inter.broker.listener.name": "BROKER",
    "controller.listener.names": "CONTROLLER",
    # A topic that a test did not create is a mistake.
    "auto.create.topics.enable": "false",
    "offsets.topic.num.partitions": 1,
    "group.initial.rebalance.delay.ms": 0,
    # Of 50 partitions the first transaction would wait for each.
    "transaction.state.log.num.partitions": 10,
    # Looked for every 10 s by default, which tests of timeouts would wait for.
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": 1000,
    "log.cleaner.backoff.ms": 500,
    # Rows of a test may have times that are years back: after the default's week they are deleted.
    "log.retention.ms": -1,
    # 128 MB by default, taken from the heap at once.
    "log.cleaner.dedupe.buffer.size": 4 << 20,
    "num.io.threads": 4,
    "num.network.threads": 2,
}
#: Users of the secured listener, and their passwords, which tests look for where they must not be.
USERS = {"writer": "secret-of-writer", "stranger": "secret-of-stranger"}
_PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
_KEYS, _CERTIFICATE, _KEYS_PASSWORD = "keys.p12", "certificate.pem", "secret-of-keys"
#: A single node elects itself and waits for nobody, but for its own registration to expire.
_ALONE = {
    "broker.session.timeout.ms": 1000,
    "broker.heartbeat.interval.ms": 200,
    "controller.quorum.election.timeout.ms": 200,
    "controller.quorum.fetch.timeout.ms": 400,
}
#: Nodes that share a busy machine are late without being gone.
_SEVERAL = {"broker.session.timeout.ms": 3000, "broker.heartbeat.interval.ms": 500}

#: A test of a query that reads Kafka. Jobs that read it once work on other lines too.
with_sparks_source = pytest.mark.skipif(
    LINE != "4.2", reason="Spark's source for Kafka is the default line's"
)


def jars(name: str) -> list[str]:
    """Return a list of jars of build.sbt: `broker`, `console-consumer`, `spark-connector`."""
    file = _LISTS / name
    if not file.is_file():
        missing = f"there is no list of jars {file}: run `make kafka-jars`"
        raise FileNotFoundError(missing)
    return file.read_text().split()


class Brokers:
    """
    A cluster of Kafka.

    Parameters
    ----------
    directory
        Takes data, settings and logs of the nodes, a folder for each.
    nodes
        How many; they are numbered from 1.
    settings
        Of each node, besides those that tests need and instead of them.
    java
        Options of each node's virtual machine, instead of others.
    stays
        Whether nodes go on after this process has ended.
    image
        What nodes start from, if not from what is made once for all clusters.
    secured
        Whether nodes have a second listener, for users: `secured_bootstrap`, `login`.

    Attributes
    ----------
    bootstrap
        For clients: address of every node. Whoever comes this way may do everything.
    secured_bootstrap
        For users, who log in by SASL/PLAIN over TLS and may do what access control lists say: at
        first nothing. Empty where nodes are not secured.
    """

    def __init__(
        self,
        directory: Path,
        *,
        nodes: int = 1,
        settings: Mapping[str, object] | None = None,
        java: Sequence[str] = (),
        stays: bool = False,
        image: Image | None = None,
        secured: bool = False,
    ) -> None:
        image = image or made()
        self.directory = directory.resolve()  # nodes run in folders of their own
        self.numbers = range(1, nodes + 1)
        self._settings, self._stays = settings or {}, stays
        self._java = (*_JAVA, *image.options, *java)
        self._daemons: dict[int, Daemon] = {}
        self._secured = secured
        ports = _free_ports(3 * nodes)
        self._broker_ports = dict(zip(self.numbers, ports[:nodes], strict=True))
        self._controller_ports = dict(zip(self.numbers, ports[nodes : 2 * nodes], strict=True))
        self._secured_ports = dict(zip(self.numbers, ports[2 * nodes :], strict=True))
        self.bootstrap = _addresses(self._broker_ports)
        self.secured_bootstrap = _addresses(self._secured_ports) if secured else ""
        if secured:
            _make_certificate(self.directory)
        self._format(image.checkpoint)
        try:
            for node in self.numbers:
                self.start(node)
            self.wait()
        except BaseException:
            self.stop()
            raise

    def _format(self, checkpoint: Path) -> None:
        """Do what `kafka-storage format` does, without a virtual machine for each node."""
        cluster = _id()
        for node in self.numbers:
            data = self._folder(node) / "data"
            data.mkdir(parents=True)
            self._config(node).write_text(_lines(self._properties(node)))
            shutil.copy(checkpoint, data / "bootstrap.checkpoint")
            facts = {"version": 1, "cluster.id": cluster, "node.id": node, "directory.id": _id()}
            (data / "meta.properties").write_text(_lines(facts))

    @property
    def certificate(self) -> Path:
        """The certificate that clients of the secured listener trust, as PEM."""
        return self.directory / _CERTIFICATE

    def login(self, user: str = "writer") -> dict[str, Any]:
        """Return what a client of librdkafka needs to be a user of `USERS`."""
        return {
            "bootstrap.servers": self.secured_bootstrap,
            "security.protocol": "SASL_SSL",
            "sasl.mechanisms": "PLAIN",
            "sasl.username": user,
            "sasl.password": USERS[user],
            "ssl.ca.location": str(self.certificate),
        }

    def java_login(self, user: str = "writer") -> dict[str, str]:
        """Return what a client of Kafka's own library needs to be a user of `USERS`."""
        return {
            "bootstrap.servers": self.secured_bootstrap,
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "PLAIN",
            "sasl.jaas.config": f"{_PLAIN} required username={user} password={USERS[user]};",
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.certificate),
        }

    @property
    def running(self) -> list[int]:
        """Nodes that were started and not killed."""
        return sorted(self._daemons)

    @property
    def processes(self) -> dict[int, int]:
        """Process ids of the nodes that run."""
        return {node: daemon.process.pid for node, daemon in self._daemons.items()}

    def start(self, node: int) -> None:
        """Start a node, or start it again after `kill`; `wait` waits until clients see it."""
        assert node not in self._daemons, f"node {node} runs already"
        command = ["java", *self._java, "-cp", ":".join(jars("broker")), "kafka.Kafka"]
        log = self.log(node)
        self._daemons[node] = Daemon(
            [*command, str(self._config(node))], log, {}, stays=self._stays
        )

    def kill(self, node: int) -> None:
        """End a node without a chance to clean up; its data stay."""
        self._daemons.pop(node).kill()

    def end(self, node: int) -> None:
        """Let a node shut itself down."""
        process = self._daemons.pop(node).process
        process.terminate()
        process.wait(LIMIT_S)

    def wait(self) -> None:
        """
        Wait until clients see the nodes that run, and no others.

        Each partition has a leader then, and all copies that are on nodes that run are equal.
        """
        from confluent_kafka.admin import AdminClient

        admin = AdminClient(client_settings(self.bootstrap))
        try:
            wait_for(f"nodes {self.running} of Kafka", lambda: self._is_ready(admin))
        except AssertionError as error:
            told = "\n".join([str(error), *(self.tail(node) for node in self.numbers)])
            raise AssertionError(told) from None

    def _is_ready(self, admin: Any) -> bool:
        from confluent_kafka import KafkaException

        for node, daemon in self._daemons.items():
            code = daemon.process.poll()
            assert code is None, f"node {node} of Kafka ended with {code}"
        with contextlib.suppress(KafkaException):
            seen = admin.list_topics(timeout=_METADATA_TIMEOUT_S)
            partitions = [p for topic in seen.topics.values() for p in topic.partitions.values()]
            running = set(self.running)
            return seen.brokers.keys() == running and all(
                p.leader in running and set(p.isrs) == running.intersection(p.replicas)
                for p in partitions
            )
        return False

    def stop(self) -> None:
        """End all nodes."""
        for node in self.running:
            self.kill(node)

    def log(self, node: int) -> Path:
        """Return what a node says."""
        return self._folder(node) / "log"

    def tail(self, node: int) -> str:
        """Return the last lines that a node said, for a message."""
        log = self.log(node)
        lines = log.read_text(errors="replace").splitlines() if log.is_file() else []
        return "\n".join([f"the end of {log}:", *lines[-_TAIL_LINES:]])

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _folder(self, node: int) -> Path:
        return self.directory / f"node-{node}"

    def _config(self, node: int) -> Path:
        return self._folder(node) / "server.properties"

    def _properties(self, node: int) -> dict[str, object]:
        copies = min(3, len(self.numbers))
        in_sync = max(1, copies - 1)
        broker = f"BROKER://{_HOST}:{self._broker_ports[node]}"
        voters = (f"{n}@{_HOST}:{port}" for n, port in self._controller_ports.items())
        controller = f"CONTROLLER://{_HOST}:{self._controller_ports[node]}"
        for_users = f",SECURED://{_HOST}:{self._secured_ports[node]}" if self._secured else ""
        return {
            **_COMMON,
            **(_ALONE if len(self.numbers) == 1 else _SEVERAL),
            **(self._security() if self._secured else {}),
            "node.id": node,
            "log.dirs": self._folder(node) / "data",
            "listeners": f"{broker},{controller}{for_users}",
            "advertised.listeners": f"{broker}{for_users}",
            "controller.quorum.voters": ",".join(voters),
            "default.replication.factor": copies,
            "min.insync.replicas": in_sync,
            "offsets.topic.replication.factor": copies,
            "transaction.state.log.replication.factor": copies,
            "transaction.state.log.min.isr": in_sync,
            "share.coordinator.state.topic.replication.factor": copies,
            "share.coordinator.state.topic.min.isr": in_sync,
            **self._settings,
        }

    def _security(self) -> dict[str, object]:
        users = " ".join(f'user_{name}="{password}"' for name, password in USERS.items())
        protocols = _COMMON["listener.security.protocol.map"]
        return {
            "listener.security.protocol.map": f"{protocols},SECURED:SASL_SSL",
            "listener.name.secured.sasl.enabled.mechanisms": "PLAIN",
            "listener.name.secured.plain.sasl.jaas.config": f"{_PLAIN} required {users};",
            "listener.name.secured.ssl.keystore.type": "PKCS12",
            "listener.name.secured.ssl.keystore.location": self.directory / _KEYS,
            "listener.name.secured.ssl.keystore.password": _KEYS_PASSWORD,
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            # Nodes, and clients of the other listener.
            "super.users": "User:ANONYMOUS",
        }


def _addresses(ports: Mapping[int, int]) -> str:
    return ",".join(f"{_HOST}:{port}" for port in ports.values())


def _make_certificate(directory: Path) -> None:
    """Make a key for the nodes, and the certificate that clients trust."""
    directory.mkdir(parents=True, exist_ok=True)
    keys = ["-alias", "node", "-keystore", str(directory / _KEYS), "-storepass", _KEYS_PASSWORD]
    names = [
        "-dname",
        "CN=localhost",
        "-ext",
        f"SAN=ip:{_HOST},dns:localhost",
        "-ext",
        "bc=ca:true",
    ]
    made_for = [
        "-storetype",
        "PKCS12",
        "-keyalg",
        "EC",
        "-groupname",
        "secp256r1",
        "-validity",
        "30",
    ]
    for command in (
        ["-genkeypair", *keys, *names, *made_for],
        ["-exportcert", "-rfc", *keys, "-file", str(directory / _CERTIFICATE)],
    ):
        done = subprocess.run(
            ["keytool", *command], capture_output=True, text=True, check=False, timeout=LIMIT_S
        )
        assert done.returncode == 0, f"keytool failed:\n{done.stdout}{done.stderr}"


def client_settings(bootstrap: str) -> dict[str, Any]:
    """Return settings of every client: it tries again soon, and does not print that it failed."""
    return {
        "bootstrap.servers": bootstrap,
        "reconnect.backoff.ms": 50,
        "reconnect.backoff.max.ms": 200,
        "log_level": 0,
    }


# ---- what is made once for all clusters


@dataclass(frozen=True)
class Image:
    """
    What a node starts from.

    Attributes
    ----------
    checkpoint
        Features of a new cluster, as the format command writes them.
    archive
        Classes of a node that has served a transaction (class data sharing): with them it starts
        in two thirds of the time.
    """

    checkpoint: Path
    archive: Path | None = None

    @property
    def options(self) -> list[str]:
        """Of a virtual machine; one that does not like the archive leaves it aside."""
        return [f"-XX:SharedArchiveFile={self.archive}"] if self.archive else []


def made() -> Image:
    """Make what nodes start from, if it is not there or is of another Java or other jars."""
    _ARCHIVES.mkdir(parents=True, exist_ok=True)
    checkpoint, archive = _ARCHIVES / "kafka.checkpoint", _ARCHIVES / "kafka.jsa"
    java = Path(shutil.which("java") or "java").resolve()
    made_for, key = _ARCHIVES / "kafka.for", "\n".join((str(java), *_JAVA, *jars("broker")))
    with (_ARCHIVES / "kafka.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not made_for.is_file() or made_for.read_text() != key:
            with tempfile.TemporaryDirectory(prefix="statemark-kafka-") as folder:
                _make_checkpoint(checkpoint, Path(folder))
                _make_archive(archive, Image(checkpoint), Path(folder))
            made_for.write_text(key)
    return Image(checkpoint, archive)


def _make_checkpoint(checkpoint: Path, folder: Path) -> None:
    config, data = folder / "format.properties", folder / "format"
    facts = {
        "process.roles": "controller",
        "node.id": 1,
        "listeners": f"CONTROLLER://{_HOST}:9093",
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.voters": f"1@{_HOST}:9093",
        "log.dirs": data,
    }
    config.write_text(_lines(facts))
    tool = ["java", *_JAVA, "-cp", ":".join(jars("broker")), "kafka.tools.StorageTool", "format"]
    done = subprocess.run(
        [*tool, "--cluster-id", _id(), "--config", str(config)],
        capture_output=True,
        text=True,
        check=False,
        timeout=LIMIT_S,
    )
    assert done.returncode == 0, f"Kafka's format command failed:\n{done.stdout}{done.stderr}"
    shutil.copy(data / "bootstrap.checkpoint", checkpoint)


def _make_archive(archive: Path, image: Image, folder: Path) -> None:
    from support import topics

    archive.unlink(missing_ok=True)
    leaves = f"-XX:ArchiveClassesAtExit={archive}"
    with Brokers(folder / "cluster", java=[leaves], image=image) as cluster:
        topics.create(cluster.bootstrap, "first")
        producer = topics.producer(cluster.bootstrap, "first")
        producer.begin_transaction()
        producer.produce("first", b"value")
        producer.commit_transaction()
        topics.settle(cluster.bootstrap, "first")
        assert len(topics.read(cluster.bootstrap, "first")) == 1
        cluster.end(1)


def _free_ports(count: int) -> list[int]:
    found: list[int] = []
    for port in SystemRandom().sample(_PORTS, len(_PORTS)):
        with socket.socket() as taken, contextlib.suppress(OSError):
            taken.bind((_HOST, port))
            found.append(port)
        if len(found) == count:
            break
    return found


def _id() -> str:
    """Make an id as Kafka writes them."""
    text = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
    # A first character that options begin with would be taken for one.
    return text if text[0] != "-" else _id()


def _lines(properties: Mapping[str, object]) -> str:
    return "".join(f"{key}={value}\n" for key, value in properties.items())
