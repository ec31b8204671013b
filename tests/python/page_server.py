"""A stand-in for the HTTP server of a master: it serves the page and recorded snapshots.

    python tests/python/page_server.py tests/page/healthy.json [PORT]

It answers as the master does, with the same Content-Security-Policy. `PageServer.put()` gives it
the snapshot of a run, and each open stream sends it.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import sys
import threading
import urllib.parse
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Any

PAGE = Path(__file__).parents[2] / "master" / "http" / "page.html"
KEEPALIVE_S = 15.0

Snapshot = dict[str, Any]


def policy(page: str) -> str:
    """Return the Content-Security-Policy of the page: its one style and its one script run."""

    def hash_of(tag: str) -> str:
        (content,) = re.findall(rf"<{tag}>(.*?)</{tag}>", page, re.DOTALL)
        digest = hashlib.sha256(content.encode()).digest()
        return f"'sha256-{base64.b64encode(digest).decode()}'"

    return (
        f"default-src 'none'; style-src {hash_of('style')}; script-src {hash_of('script')}; "
        "connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; "
        "frame-ancestors 'none'"
    )


class PageServer:
    """A server at a port of this machine; it can be stopped and started again at the same port."""

    def __init__(self, port: int = 0) -> None:
        self.port = port
        self.runs: dict[str, Snapshot] = {}
        self.serial = 0  # of the last put() or end()
        self.refuses_streams = False
        self.changed = threading.Condition()
        self._server: ThreadingHTTPServer | None = None
        self.start()

    def start(self) -> None:
        server = ThreadingHTTPServer(("127.0.0.1", self.port), _Handler)
        server.daemon_threads = True
        server.block_on_close = False
        server.page_server = self  # type: ignore[attr-defined]
        self.port = server.server_address[1]
        self._server = server
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()

    def stop(self) -> None:
        """End the server and its streams."""
        with self.changed:
            server, self._server = self._server, None
            self.changed.notify_all()
        if server is not None:
            server.shutdown()
            server.server_close()

    def put(self, snapshot: Snapshot, run: str = "") -> None:
        with self.changed:
            self.runs[run or str(snapshot["run"])] = snapshot
            self.serial += 1
            self.changed.notify_all()

    def end(self, run: str) -> None:
        """End a run: its streams have an event `gone`."""
        with self.changed:
            del self.runs[run]
            self.serial += 1
            self.changed.notify_all()

    def is_running(self, server: object) -> bool:
        return self._server is server

    def url(self, path: str = "/") -> str:
        return f"http://127.0.0.1:{self.port}{path}"

    def __enter__(self) -> PageServer:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()


class _Handler(BaseHTTPRequestHandler):
    """The routes of the master's server."""

    def log_message(self, *_: object) -> None:
        pass

    @property
    def owner(self) -> PageServer:
        owner: PageServer = self.server.page_server  # type: ignore[attr-defined]
        return owner

    def do_GET(self) -> None:
        parts = urllib.parse.urlsplit(self.path)
        query = urllib.parse.parse_qs(parts.query)
        if parts.path == "/" or re.fullmatch(r"/run/[^/]+", parts.path):
            page = PAGE.read_text()
            self._answer(200, "text/html; charset=utf-8", page, policy(page))
        elif parts.path == "/api/v1/runs":
            self._json(200, {"runs": [_listed(name) for name in sorted(self.owner.runs)]})
        elif found := re.fullmatch(r"/api/v1/run/([^/]+)", parts.path):
            run = urllib.parse.unquote(found[1])
            known = self.owner.runs.get(run)
            error = {"error": f'run "{run}" is not known to this master'}
            self._json(404 if known is None else 200, known or error)
        elif parts.path == "/events":
            self._stream(query.get("run", [""])[0])
        else:
            self._answer(404, "text/plain", "not found\n")

    def _json(self, status: int, what: object) -> None:
        self._answer(status, "application/json", json.dumps(what) + "\n")

    def _answer(self, status: int, kind: str, body: str, csp: str = "default-src 'none'") -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Security-Policy", csp)
        self.send_header("X-Content-Type-Options", "nosniff")
        self.send_header("Cache-Control", "no-store")
        self.end_headers()
        self.wfile.write(body.encode())

    def _stream(self, run: str) -> None:
        owner = self.owner
        if owner.refuses_streams:
            return self._json(503, {"error": "this master serves no more streams"})
        if run not in owner.runs:
            return self._json(404, {"error": f'run "{run}" is not known to this master'})
        self._answer(200, "text/event-stream", "")
        sent, serial = None, -1
        while True:
            with owner.changed:
                known = owner.runs.get(run)
                serial = owner.serial
            try:
                if known is None:
                    self.wfile.write(b"event: gone\ndata: {}\n\n")
                    return None
                if known is not sent:
                    self.wfile.write(f"event: snapshot\ndata: {json.dumps(known)}\n\n".encode())
                    sent = known
                else:
                    self.wfile.write(b": still here\n\n")
            except OSError:  # the reader has closed its page
                return None
            with owner.changed:
                owner.changed.wait_for(
                    lambda seen=serial: owner.serial != seen or not owner.is_running(self.server),
                    KEEPALIVE_S,
                )
                if not owner.is_running(self.server):
                    return None


def _listed(run: str) -> dict[str, Any]:
    """Return a run as `pccl runs --json` lists it."""
    state = {"group": 0, "revision": 120, "hash": "00c0ffee00c0ffee"}
    return {
        "run": run,
        "state": "training",
        "peers": 3,
        "address": "127.0.0.1:50122",
        "since": 1796092649,
        "shared_states": [state],
    }


def main() -> None:
    snapshot = json.loads(Path(sys.argv[1]).read_text())
    with PageServer(int(sys.argv[2]) if len(sys.argv) > 2 else 0) as server:
        server.put(snapshot)
        print(server.url(f"/run/{urllib.parse.quote(str(snapshot['run']), safe='')}"), flush=True)
        threading.Event().wait()


if __name__ == "__main__":
    main()
