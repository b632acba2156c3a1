"""A hub that fails: statuses, wrong headers, broken bodies, files that change, redirects.

The real client talks to a server in the same child. What is accepted has the numbers of one
version.
"""

from __future__ import annotations

import json
import os
import random
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import hub_server
from hub_server import CLIENT_VARIABLES, Sparse, client_constants

from fuzz import build
from fuzz.case import Case

TENSOR = "wpe.weight"
REPO = "owner/model"
FILE = "model.safetensors"
#: Seconds that the client may wait in all, by its own account; it does not really wait here.
PATIENCE = 300.0


class Changing(Sparse):
    """A file that is another one after its first reads."""

    def __init__(self, old: bytes, new: bytes, n_requests: int) -> None:
        super().__init__(len(old), {0: old})
        self.new, self.after = new, n_requests

    def read(self, start: int, stop: int) -> bytes:
        self.after -= 1
        if self.after < 0:
            return self.new[start:stop]
        content = super().read(start, stop)
        if self.after == 0:
            self.size = len(self.new)
        return content


@contextmanager
def served(description: Mapping[str, Any], scratch: Path) -> Iterator[None]:
    """Run the hub that a case describes, and point the client to it."""
    from huggingface_hub import close_session, constants

    from posprobe.checkpoints import transfer

    waited = [0.0]

    def pause(seconds: float) -> None:
        waited[0] += seconds
        if waited[0] > PATIENCE:
            raise AssertionError(f"it waits for {waited[0]:.0f} seconds")

    transfer.pause = pause
    for name in (*CLIENT_VARIABLES, "HF_HUB_OFFLINE"):
        os.environ.pop(name, None)
    with hub_server.serve() as hub:
        hub.large = description.get("large", 1_000_000)
        files: dict[str, Any] = dict(description["files"])
        if "changed" in description:
            files[FILE] = Changing(
                files[FILE], description["changed"], description.get("after", 1)
            )
        hub.add(REPO, files)
        for fault in description.get("faults", ()):
            hub.fail(**fault)
        patient = {
            "HF_HUB_DOWNLOAD_TIMEOUT": 1, "HF_HUB_ETAG_TIMEOUT": 1,
            "HF_HUB_DISABLE_PROGRESS_BARS": True,
        }  # fmt: skip
        for name, value in {**client_constants(hub, scratch), **patient}.items():
            setattr(constants, name, value)
        close_session()
        try:
            yield
        finally:
            hub.closing.set()
            close_session()


def _tensors(rng: random.Random) -> bytes:
    return build.safetensors(
        {TENSOR: build.table(rng, 16, 4), "b": build.table(rng, 16, 4)}
    )


def _case(subject: str, content: bytes, *faults: dict[str, Any], **hub: Any) -> Case:
    config = {"model_type": "gpt2", "n_positions": 16}
    files = {
        FILE: content,
        "config.json": json.dumps(config).encode(),
        **hub.pop("more", {}),
    }
    expected = hub.pop("expected", "any")
    truths = {"truth.safetensors": content}
    if "changed" in hub:
        truths["new.safetensors"] = hub["changed"]
    return build.extract(
        subject, truths, TENSOR, REPO, read=("|".join(truths), TENSOR), expected=expected,
        hub={"files": files, "faults": list(faults), **hub},
    )  # fmt: skip


def _match(rng: random.Random) -> dict[str, Any]:
    match = rng.choice(("/api/", "config.json", FILE, FILE, "/"))
    return {"match": match, "times": rng.choice((1, 2, 5, 1_000_000))}


def _large(rng: random.Random) -> dict[str, Any]:
    return {"large": rng.choice((10, 1_000_000))}


def _sound(rng: random.Random) -> Case:
    return _case("sound", _tensors(rng), expected="accepted", **_large(rng))


#: Answers with an error, or with success of another kind.
_STATUSES = (
    400, 401, 403, 404, 408, 416, 418, 429, 451, 500, 502, 503, 504, 520, 599, 204, 205, 206, 203,
    300, 304,
)  # fmt: skip
#: When to come back, by two headers.
_RETRY_HEADERS = (
    "0", "5", "999999999999", "-1", "soon", "1e5", "\u0663", "9" * 500, "nan",
    "Wed, 21 Oct 2099 07:28:00 GMT", "Fri, 31 Dec 9999 23:59:59 -2359",
    "Mon, 01 Jan 0001 00:00:00 +2359", "Fri, 31 Dec 99999 23:59:59 GMT",
)  # fmt: skip
_LIMITS = ('"api";r=0;t=55', '"api";r=0;t=' + "9" * 400, ";r=0;t=\u0663")
_CODES = ("GatedRepo", "RepoNotFound", "RevisionNotFound", "EntryNotFound")
#: Headers that say something else than the body, None where one is missing.
_HEADERS: dict[str, tuple[str | None, ...]] = {
    "Content-Range": (
        None, "bytes 0-9/10", "bytes */100", "bytes 5-1/10", "bytes 0-99999999999/99999999999",
        "items 0-5/10", "bytes 0-0/0", "x", "\x1b[2J", "bytes 8-63/64",
    ),
    "Content-Length": (None, "0", "5", "99999999999999999999", "-1", "x", "1e3"),
    "Content-Encoding": ("gzip", "br", "identity", "x", "deflate"),
    "X-Repo-Commit": (None, "0" * 40, "main", "\x1b[2J", ""),
    "ETag": (None, '""', '"x"', 'W/"x"', "\x1b[2J", "x" * 5000),
    "X-Linked-Size": (None, "0", "-5", "9" * 30, "x"),
    "X-Linked-Etag": ('"other"',),
    "Location": (
        None, "", "http://127.0.0.1:9/", "file:///etc/passwd", "//evil.example/", "x" * 9000,
        "http://[::1", "\x1b[2J", "javascript:x",
    ),
    "Transfer-Encoding": ("chunked",),
    "Content-Type": ("multipart/byteranges; boundary=x",),
    "Set-Cookie": ("a=" + "b" * 9000,),
}  # fmt: skip
_BODIES = (
    b"", b"<html>sign in</html>", b"{}", b"[]", b"null", b"\xff" * 100, b"\0" * 300, b"[" * 100_000,
    b'{"sha": "' + b"a" * 40 + b'"}', b'{"a":' * 50_000, b'"' + b"\x1b[2J" * 9 + b'"', b"9" * 5000,
    b"version https://git-lfs.github.com/spec/v1\n",
)  # fmt: skip


def _status(rng: random.Random) -> Case:
    bad = rng.choice(build.HOSTILE).replace("\n", " ").replace("\r", " ")
    headers = rng.choice(
        (
            {},
            {"Retry-After": rng.choice(_RETRY_HEADERS)},
            {"RateLimit": rng.choice(_LIMITS)},
            {"X-Error-Code": rng.choice((*_CODES, bad))},
            {"X-Error-Message": bad, "X-Error-Code": rng.choice(("", "GatedRepo"))},
            {"Location": "http://127.0.0.1:9/x"},
        )
    )
    sent = {name: value.encode("latin-1", "replace").decode("latin-1")
            for name, value in headers.items()}  # fmt: skip
    fault = {
        "kind": "status",
        "status": rng.choice(_STATUSES),
        "headers": sent,
        **_match(rng),
    }
    return _case(f"status {fault['status']}", _tensors(rng), fault, **_large(rng))


def _headers(rng: random.Random) -> Case:
    name = rng.choice((*_HEADERS, "many"))
    many_headers = {f"X-{n}": "y" for n in range(300)}
    headers = {name: rng.choice(_HEADERS[name])} if name in _HEADERS else many_headers
    fault = {"kind": "headers", "headers": headers, **_match(rng)}
    return _case(f"headers {name}", _tensors(rng), fault, **_large(rng))


def _body(rng: random.Random) -> Case:
    kind = rng.choice(("whole", "short", "cut", "hang", "body", "body"))
    fault: dict[str, Any] = {
        "kind": kind,
        **_match(rng),
        "after": rng.choice((0, 1, 8, 100, 300)),
    }
    if kind == "hang":
        fault["times"] = 1
    elif kind == "body":
        fault["body"] = rng.choice(_BODIES)
    return _case(f"body: {kind}", _tensors(rng), fault, **_large(rng))


def _page(rng: random.Random) -> Case:
    """Answer the question for a repository with a page that is damaged or hostile."""
    siblings: Any = [{"rfilename": FILE}, {"rfilename": "config.json"}]
    page: Any = {"id": REPO, "modelId": REPO, "sha": "a" * 40, "siblings": siblings}
    kind = rng.choice(("mutated", "mutated", "name", "many", "sha"))
    if kind == "mutated":
        page = build.mutated(rng, page)
    elif kind == "name":
        names = ("../x.bin", "/etc/passwd", "a\\b.bin", "model.safetensors.index.json")
        siblings.append({"rfilename": rng.choice((*build.HOSTILE, *names))})
    elif kind == "many":
        page["siblings"] = [{"rfilename": f"x{n}.txt"} for n in range(20_000)] + siblings
    else:
        page["sha"] = rng.choice(
            (
                None,
                "",
                "main",
                "A" * 40,
                "a" * 39,
                "a" * 64,
                "\x1b[2J",
                "../" * 14,
                7,
                ["a" * 40],
            )
        )
    fault = {"kind": "body", "match": "/api/models", "body": build.dumps(page)}
    return _case(f"page: {kind}", _tensors(rng), fault)


def _changing(rng: random.Random) -> Case:
    """Replace the file while it is read; where the server tells, its ETag changes as well."""
    old, new = _tensors(rng), _tensors(rng)
    kind = rng.choice(("same length", "longer"))
    if kind == "longer":
        new = build.safetensors(
            {TENSOR: build.table(rng, 32, 4), "b": build.table(rng, 16, 4)}
        )
    n_requests = rng.choice((1, 1, 2))
    headers = dict.fromkeys(("ETag", "X-Linked-Etag"), '"another"')
    fault = {"kind": "headers", "match": FILE}
    faults = {**fault, "times": n_requests}, {**fault, "headers": headers}
    # A server that tells nothing can be found out by a digest alone, which it need not give.
    return _case(
        f"a file that changes: {kind}",
        old,
        *faults,
        changed=new,
        after=n_requests,
        **_large(rng),
    )


def _files(rng: random.Random) -> Case:
    """Publish damaged files."""
    subject, content = build.damage(rng, _tensors(rng))
    return _case(f"a damaged file: {subject}", content, **_large(rng))


make = build.one_of(
    (2, _sound), (4, _status), (4, _headers), (4, _body), (3, _page), (3, _changing), (2, _files),
)  # fmt: skip


def prepare() -> None:
    """Import all that the client's first request imports."""
    from huggingface_hub import close_session, get_session

    get_session()
    close_session()
