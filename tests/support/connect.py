"""A server of Spark Connect."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pyspark

from support.processes import Daemon
from support.session import PATIENT

if TYPE_CHECKING:
    from collections.abc import Sequence

_SUBMIT = Path(pyspark.__file__).parent / "bin/spark-submit"
#: The class that spark-submit runs for a server.
SERVER = "org.apache.spark.sql.connect.service.SparkConnectServer"


def serve(flags: Sequence[str], log: Path) -> tuple[Daemon, str]:
    """
    Start a server with flags of `spark-submit`.

    Returns
    -------
    tuple
        The process, which the caller kills, and the address for clients.
    """
    command = [str(_SUBMIT), "--class", SERVER, "--master", "local[2]", *flags]
    command += ["--conf", "spark.connect.grpc.binding.address=127.0.0.1"]
    command += ["--conf", "spark.connect.grpc.binding.port=0", "--conf", "spark.ui.enabled=false"]
    for key, value in PATIENT.items():
        command += ["--conf", f"{key}={value}"]
    command += ["--conf", "spark.log.structuredLogging.enabled=false", "spark-internal"]
    daemon = Daemon(command, log, {"PYSPARK_PYTHON": sys.executable})
    port = daemon.said(r"Spark Connect server started at: \S*:(\d+)")
    return daemon, f"sc://127.0.0.1:{port}"
