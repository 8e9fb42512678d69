"""An S3 server on this machine that writes down every request; as a script it is that server."""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote

BUCKET = "checkpoints"
#: COPY is a PUT that names its source, LIST a GET of a bucket, POST a delete of several keys or a
#: step of a multipart upload.
KINDS = ("PUT", "COPY", "GET", "LIST", "HEAD", "DELETE", "POST")
_MARK = "mark"


@dataclass(frozen=True)
class Request:
    """
    One request that the server has answered.

    Attributes
    ----------
    kind
        One of `KINDS`.
    key
        The object's key, or the prefix that is listed; of a delete of several keys the first one.
    status
        As HTTP has it.
    """

    kind: str
    key: str
    status: int


class Server:
    """
    A running server.

    Parameters
    ----------
    url
        Its endpoint.
    log
        File with a line for each request, written before the answer is sent.
    """

    def __init__(self, url: str, log: Path) -> None:
        self.url, self._file = url, log

    def log(self) -> list[Request | str]:
        """Return the requests in order; a text is a mark that the job has set."""
        return [_parsed(line) for line in self._file.read_text().splitlines()]


@contextmanager
def serve(directory: Path) -> Iterator[Server]:
    """Run a server with one empty bucket until the block ends."""
    log = directory / "requests.log"
    log.touch()
    errors = directory / "server.log"
    with (
        errors.open("w") as stderr,
        subprocess.Popen(
            [sys.executable, __file__, str(log)],
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
        ) as process,
    ):
        assert process.stdout is not None
        port = process.stdout.readline().strip()
        assert port, errors.read_text()
        try:
            yield Server(f"http://127.0.0.1:{port}", log)
        finally:
            process.terminate()


def _parsed(line: str) -> Request | str:
    method, path, query, copied, status, *keys = line.split("\t")
    bucket, _, key = unquote(path).lstrip("/").partition("/")
    if bucket == _MARK:
        return key
    if method == "GET" and "list-type=2" in query:
        return Request("LIST", parse_qs(query).get("prefix", [""])[0], int(status))
    if keys:
        key = keys[0]
    return Request("COPY" if copied == "copied" else method, key, int(status))


def _application(log: Path) -> Any:
    from moto.core import DEFAULT_ACCOUNT_ID
    from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
    from moto.s3.models import s3_backends

    s3 = DomainDispatcherApplication(create_backend_app)
    s3_backends[DEFAULT_ACCOUNT_ID]["aws"].create_bucket(BUCKET, "us-east-1")
    out = os.open(log, os.O_WRONLY | os.O_APPEND)

    def counted(environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        method, path = environ["REQUEST_METHOD"], environ["PATH_INFO"]
        copied = "copied" if "HTTP_X_AMZ_COPY_SOURCE" in environ else ""
        keys: list[str] = []
        if method == "POST" and "delete" in environ["QUERY_STRING"]:
            body = environ["wsgi.input"].read(int(environ["CONTENT_LENGTH"]))
            environ["wsgi.input"] = io.BytesIO(body)
            keys = re.findall("<Key>(.*?)</Key>", body.decode())

        def start(status: str, *rest: Any) -> Any:
            fields = [method, path, environ["QUERY_STRING"], copied, status.split()[0], *keys]
            os.write(out, ("\t".join(fields) + "\n").encode())
            return start_response(status, *rest)

        if path.startswith(f"/{_MARK}/"):
            start("200 OK", [("Content-Length", "0")])
            return [b""]
        return s3(environ, start)

    return counted


def _main(log: Path) -> None:
    import logging

    from werkzeug.serving import WSGIRequestHandler, make_server

    class Handler(WSGIRequestHandler):
        def handle_expect_100(self) -> bool:
            # Werkzeug says `100 Continue` as well; the client takes the second one for the answer.
            return True

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    app = _application(log)
    server = make_server("127.0.0.1", 0, app, threaded=True, request_handler=Handler)
    print(server.port, flush=True)
    server.serve_forever()


if __name__ == "__main__":
    _main(Path(sys.argv[1]))
