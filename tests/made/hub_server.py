"""A local model hub: the parts of the Hub's protocol that its client uses, and ways to fail.

It counts the bytes that it sends and keeps every request.

Two servers stand for one Hub: large files are redirected to a second port, as to a CDN.
"""

from __future__ import annotations

import functools
import hashlib
import json
import re
import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any, Literal, cast
from urllib.parse import parse_qs, unquote, urlsplit

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

CHUNK = 64 * 1024
#: Environment variables that redirect the client or identify the user.
CLIENT_VARIABLES = ("HF_TOKEN", "HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy")


class Sparse:
    """A file of zeros with a few pieces of content, of any size without memory."""

    def __init__(self, size: int, pieces: Mapping[int, bytes]) -> None:
        self.size = size
        self.pieces = pieces

    def read(self, start: int, stop: int) -> bytes:
        stop = min(stop, self.size)
        content = bytearray(max(0, stop - start))
        for offset, piece in self.pieces.items():
            first, stop_in_range = max(start, offset), min(stop, offset + len(piece))
            if first < stop_in_range:
                content[first - start : stop_in_range - start] = piece[
                    first - offset : stop_in_range - offset
                ]
        return bytes(content)

    @functools.cached_property
    def etag(self) -> str:
        """Digest of the content."""
        identity = [self.size, *sorted(self.pieces.items())]
        return hashlib.sha1(repr(identity).encode(), usedforsecurity=False).hexdigest()


@dataclass
class Repo:
    """A repository: its files, its revisions, and who may read it."""

    files: dict[str, Sparse]
    commit: str
    revisions: dict[str, str]
    token: str | None = None
    gated: bool = False
    #: Titles of commits of the main branch, the newest first.
    commits: dict[str, str] = field(default_factory=dict)


@dataclass
class Fault:
    """A fault of the next ``times`` requests whose path contains ``match``.

    ``status`` answers with a status; ``whole`` ignores the Range header; ``short`` announces and
    sends only ``after`` bytes of the range; ``cut`` closes the connection and ``hang`` goes silent,
    both after ``after`` bytes of the body; ``drip`` sends a byte of the body now and then, and
    ``drip-head`` one of a header; ``headers`` changes headers of the answer (None leaves one out);
    ``body`` answers 200 with other content.
    """

    kind: Literal[
        "status", "whole", "short", "cut", "hang", "drip", "drip-head", "headers", "body"
    ]
    match: str
    times: int = 1_000_000
    status: int = 500
    after: int = 0
    headers: dict[str, str | None] = field(default_factory=dict)
    body: bytes = b""


@dataclass
class Request:
    """One request as it arrived, and how many bytes were sent for it, headers included."""

    server: Literal["hub", "cdn"]
    method: str
    path: str
    query: dict[str, list[str]]
    headers: dict[str, str]
    target: str
    status: int = 0
    sent: int = 0
    is_finished: bool = False
    #: Arrival in seconds, and requests under way at that time, this one included.
    arrived: float = 0.0
    n_concurrent: int = 0


class Hub:
    """The Hub itself; `serve` starts one."""

    def __init__(self) -> None:
        self.repos: dict[str, Repo] = {}
        self.renamed: dict[str, str] = {}
        self.faults: list[Fault] = []
        self.requests: list[Request] = []
        self.large = 1_000_000
        #: Seconds that every answer takes to begin.
        self.slow = 0.0
        self.published = 0
        self.closing = threading.Event()
        self.lock = threading.Lock()
        self.servers = {name: _Server(self, name) for name in ("hub", "cdn")}

    @property
    def url(self) -> str:
        return self.servers["hub"].url

    def add(
        self, repo_id: str, files: Mapping[str, bytes | Sparse], **options: Any
    ) -> Repo:
        """Publish a repository, or a new commit on its main branch."""
        stored = {
            name: content
            if isinstance(content, Sparse)
            else Sparse(len(content), {0: content})
            for name, content in files.items()
        }
        self.published += 1
        seed = f"{repo_id} {self.published}"
        commit = hashlib.sha1(seed.encode(), usedforsecurity=False).hexdigest()
        repo = Repo(stored, commit, {"main": commit}, **options)
        self.repos[repo_id] = repo
        return repo

    def fail(self, kind: Any, match: str, **options: Any) -> Fault:
        fault = Fault(kind, match, **options)
        self.faults.append(fault)
        return fault

    def fault(self, path: str) -> Fault | None:
        with self.lock:
            for fault in self.faults:
                if fault.match in path and fault.times > 0:
                    fault.times -= 1
                    return fault
        return None

    def sent(self, part: str = "") -> int:
        """Bytes sent for requests whose path contains ``part``."""
        # A client has the last bytes a moment before the server has counted them.
        patience = time.monotonic() + 2
        while (
            not all(r.is_finished for r in list(self.requests))
            and time.monotonic() < patience
        ):
            time.sleep(0.002)
        return sum(request.sent for request in self.requests if part in request.path)

    def paths(self, part: str = "") -> list[str]:
        return [request.path for request in self.requests if part in request.path]

    def forget(self) -> None:
        self.requests.clear()


@contextmanager
def serve() -> Iterator[Hub]:
    """Run a hub on free ports until the block is left."""
    hub = Hub()
    threads = [
        threading.Thread(target=s.serve_forever, args=(0.01,))
        for s in hub.servers.values()
    ]
    for thread in threads:
        thread.start()
    try:
        yield hub
    finally:
        hub.closing.set()
        for server in hub.servers.values():
            server.shutdown()
        for thread in threads:
            thread.join()
        for server in hub.servers.values():
            server.server_close()


def client_constants(hub: Hub, folder: Path) -> dict[str, Any]:
    """Return constants that point the client at this hub and a folder for its files.

    Without the last, newer clients ask the Hub for a list of agents first, once per process.
    """
    return {
        "ENDPOINT": hub.url, "HF_HUB_OFFLINE": False, "HF_HUB_CACHE": str(folder / "hub"),
        "HUGGINGFACE_CO_URL_TEMPLATE": f"{hub.url}/{{repo_id}}/resolve/{{revision}}/{{filename}}",
        "HF_TOKEN_PATH": str(folder / "token"), "HF_HUB_DISABLE_TELEMETRY": True,
    }  # fmt: skip


class _Server(ThreadingHTTPServer):
    daemon_threads = (
        False  # closing the server waits for them, so that no socket is left open
    )

    def __init__(self, hub: Hub, name: str) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.hub = hub
        self.name = name
        self.url = f"http://127.0.0.1:{self.server_address[1]}"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore clients that leave early, as some tests make them do."""


class _CountingStream:
    """A stream to the client that counts its bytes."""

    def __init__(self, stream: Any) -> None:
        self.stream = stream
        self.count = 0

    def write(self, data: bytes) -> int:
        written: int = self.stream.write(data)
        self.count += len(data)
        return written

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = 30
    server: _Server

    def setup(self) -> None:
        super().setup()
        self.wfile = cast("Any", _CountingStream(self.wfile))

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class's name
        """Say nothing."""

    def do_HEAD(self) -> None:
        self._handle()

    def do_GET(self) -> None:
        self._handle()

    def _handle(self) -> None:
        # A proxy is asked with the whole URL in the request line.
        split = urlsplit(self.path)
        self.request_ = Request(
            cast("Any", self.server.name), self.command, unquote(split.path),
            parse_qs(split.query), {k.lower(): v for k, v in self.headers.items()}, self.path,
            arrived=time.monotonic(),
        )  # fmt: skip
        self.request_.n_concurrent = 1 + sum(
            not r.is_finished for r in list(self.server.hub.requests)
        )
        self.server.hub.requests.append(self.request_)
        if self.server.hub.slow:
            time.sleep(self.server.hub.slow)
        counter = cast("_CountingStream", self.wfile)
        count_before = counter.count
        self.fault = self.server.hub.fault(self.request_.path)
        try:
            self._route()
            self.wfile.flush()
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True
        finally:
            self.request_.sent = counter.count - count_before
            self.request_.is_finished = True

    def _route(self) -> None:
        hub, path, fault = self.server.hub, self.request_.path, self.fault
        if fault is not None and fault.kind == "status":
            self._answer(fault.status, {}, b'{"error": "as told"}')
        elif fault is not None and fault.kind == "body":
            self._answer(200, {}, fault.body)
        elif (
            path == "/api/agent-harnesses"
        ):  # newer clients ask once, for their user agent
            self._answer(200, {}, b'{"standardEnvVars": [], "harnesses": {}}')
        elif revisions_match := re.fullmatch(
            r"/api/models/(.+?)/(refs|commits/main)", path
        ):
            name, listing = revisions_match.groups()
            if (repo_and_commit := self._find(name, "main")) is not None:
                self._revisions(repo_and_commit[0], listing)
        elif tree_match := re.fullmatch(r"/api/models/(.+?)/tree/([^/]+)", path):
            if (repo_and_commit := self._find(*tree_match.groups())) is not None:
                self._tree(repo_and_commit[0])
        elif model_match := re.fullmatch(r"/api/models/(.+?)(?:/revision/(.+))?", path):
            name, revision = model_match.groups()
            if name in hub.renamed:
                suffix = f"/revision/{revision}" if revision else ""
                location = (
                    f"/api/models/{hub.renamed[name]}{suffix}?{urlsplit(self.path).query}"
                )
                self._answer(307, {"Location": location})
            elif (repo_and_commit := self._find(name, revision or "main")) is not None:
                self._page(name, *repo_and_commit)
        elif file_match := re.fullmatch(
            r"(?:/cdn)?/([^/]+(?:/[^/]+)?)/resolve/([^/]+)/(.+)", path
        ):
            name, revision, file = file_match.groups()
            if name in hub.renamed:
                location = f"/{hub.renamed[name]}/resolve/{revision}/{file}"
                self._answer(307, {"Location": location})
            elif self.server.name == "cdn":
                self._content(hub.repos[name].files[file], {})
            elif (repo_and_commit := self._find(name, revision)) is not None:
                self._resolve(name, file, *repo_and_commit)
        else:
            self._answer(404, {})

    def _tree(self, repo: Repo) -> None:
        """List files with their sizes."""
        entries = [
            {"type": "file", "path": name, "size": file.size, "oid": file.etag}
            for name, file in repo.files.items()
        ]
        self._answer(
            200, {"Content-Type": "application/json"}, json.dumps(entries).encode()
        )

    def _find(self, name: str, revision: str) -> tuple[Repo, str] | None:
        """Find a repository and commit, or refuse as the Hub does."""
        repo = self.server.hub.repos.get(name)
        token = self.headers.get("Authorization", "").removeprefix("Bearer ")
        is_api = self.request_.path.startswith("/api/")
        if repo is None or (
            repo.token is not None and token != repo.token and not repo.gated
        ):
            if token:
                self._refuse(404, "RepoNotFound", "Repository not found")
            else:
                self._refuse(401, "RepoNotFound", "Invalid username or password.")
        elif repo.gated and token != repo.token and not is_api:
            self._refuse(
                403 if token else 401,
                "GatedRepo",
                f"Access to model {name} is restricted",
            )
        elif revision not in repo.revisions and revision != repo.commit:
            self._refuse(404, "RevisionNotFound", f"Invalid rev id: {revision}")
        else:
            return repo, repo.revisions.get(revision, repo.commit)
        return None

    def _page(self, name: str, repo: Repo, commit: str) -> None:
        blobs = "blobs" in self.request_.query
        siblings = [
            {"rfilename": file} | ({"size": content.size} if blobs else {})
            for file, content in repo.files.items()
        ]
        page = {"id": name, "modelId": name, "sha": commit, "siblings": siblings}
        self._answer(200, {"Content-Type": "application/json"}, json.dumps(page).encode())

    def _revisions(self, repo: Repo, listing: str) -> None:
        branches = [{"name": name, "ref": f"refs/heads/{name}", "targetCommit": commit}
                    for name, commit in repo.revisions.items()]  # fmt: skip
        refs = {"branches": branches, "tags": [], "converts": []}
        commits = [{"id": commit, "title": title, "message": "", "authors": [],
                    "date": "2024-01-01T00:00:00.000Z"}
                   for commit, title in repo.commits.items()]  # fmt: skip
        answer = refs if listing == "refs" else commits
        self._answer(
            200, {"Content-Type": "application/json"}, json.dumps(answer).encode()
        )

    def _resolve(self, name: str, file: str, repo: Repo, commit: str) -> None:
        content = repo.files.get(file)
        if content is None:
            self._refuse(404, "EntryNotFound", "Entry not found")
            return
        etag = content.etag
        headers = {"X-Repo-Commit": commit, "ETag": f'"{etag}"', "Accept-Ranges": "bytes"}
        if content.size < self.server.hub.large:
            self._content(content, headers)
            return
        headers |= {"X-Linked-Size": str(content.size), "X-Linked-Etag": f'"{etag}"'}
        url = f"{self.server.hub.servers['cdn'].url}/cdn/{name}/resolve/{commit}/{file}"
        self._answer(302, headers | {"Location": url})

    def _content(self, content: Sparse, headers: dict[str, str]) -> None:
        requested_range = re.fullmatch(
            r"bytes=(\d+)-(\d*)", self.headers.get("Range", "")
        )
        if requested_range is None or (
            self.fault is not None and self.fault.kind == "whole"
        ):
            self._answer(200, headers, content)
            return
        start = int(requested_range[1])
        stop = min(
            int(requested_range[2]) + 1 if requested_range[2] else content.size,
            content.size,
        )
        if start >= content.size:
            self._answer(416, headers | {"Content-Range": f"bytes */{content.size}"})
            return
        if self.fault is not None and self.fault.kind == "short":
            stop = min(stop, start + self.fault.after)
        range_header = {"Content-Range": f"bytes {start}-{stop - 1}/{content.size}"}
        self._answer(206, headers | range_header, content, start, stop)

    def _refuse(self, status: int, code: str, message: str) -> None:
        headers = {"X-Error-Code": code, "X-Error-Message": message}
        self._answer(status, headers, json.dumps({"error": message}).encode())

    def _answer(
        self,
        status: int,
        headers: Mapping[str, str],
        body: bytes | Sparse = b"",
        start: int = 0,
        stop: int | None = None,
    ) -> None:
        content = body if isinstance(body, Sparse) else Sparse(len(body), {0: body})
        end = content.size if stop is None else stop
        sent_headers: dict[str, str | None] = {
            **headers,
            "Content-Length": str(end - start),
        }
        fault = self.fault
        sent_headers |= fault.headers if fault is not None else {}
        self.request_.status = status
        if fault is not None and fault.kind == "drip-head":
            self._drip(b"HTTP/1.1 200 OK\r\nX-Long: " + bytes(10**6).replace(b"\0", b"a"))
            return
        self.send_response(status)
        for name, value in sent_headers.items():
            if value is not None:
                self.send_header(name, value)
        if sent_headers["Content-Length"] is None:  # the body ends with the connection
            self.close_connection = True
        self.end_headers()
        if self.command == "HEAD":
            return
        if fault is not None and fault.kind == "drip":
            self._drip(content.read(start, end))
        elif fault is not None and fault.kind in ("cut", "hang"):
            self._send(content, start, min(end, start + fault.after))
            self.wfile.flush()
            if fault.kind == "hang":
                self.server.hub.closing.wait(30)
            self.close_connection = True
        else:
            self._send(content, start, end)

    def _drip(self, content: bytes) -> None:
        for byte in content:
            if self.server.hub.closing.wait(0.05):
                break
            self.wfile.write(bytes([byte]))
            self.wfile.flush()
        self.close_connection = True

    def _send(self, content: Sparse, start: int, stop: int) -> None:
        for begin in range(start, stop, CHUNK):
            if self.server.hub.closing.is_set():
                return
            self.wfile.write(content.read(begin, min(stop, begin + CHUNK)))
