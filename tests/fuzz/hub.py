"""A hub that fails: statuses, wrong headers, broken bodies, files that change, redirects.

The real client talks to a server in the same child. What is accepted has the numbers of one
version.
"""

from __future__ import annotations

import json
import os
import random
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import hub_server
from hub_server import Sparse

from fuzz import build
from fuzz.case import Case

TENSOR, REPO, FILE = "wpe.weight", "owner/model", "model.safetensors"
#: Seconds that the client may wait in all, by its own account; it does not really wait here.
PATIENCE = 300.0


class Changing(Sparse):
    """A file that is another one after its first reads."""

    def __init__(self, old: bytes, new: bytes, after: int) -> None:
        super().__init__(len(old), {0: old})
        self.new, self.after = new, after

    def read(self, start: int, stop: int) -> bytes:
        self.after -= 1
        if self.after < 0:
            return self.new[start:stop]
        content = super().read(start, stop)
        if self.after == 0:
            self.size = len(self.new)
        return content


class Dripping(Sparse):
    """A file that comes byte by byte, with pauses."""

    def read(self, start: int, stop: int) -> bytes:
        time.sleep(0.01)
        return super().read(start, stop)


@contextmanager
def served(told: Mapping[str, Any], scratch: Path) -> Iterator[None]:
    """Run the hub that a case describes, and point the client to it."""
    from huggingface_hub import close_session, constants

    from posprobe.checkpoints import transfer

    waited = [0.0]

    def pause(seconds: float) -> None:
        waited[0] += seconds
        if waited[0] > PATIENCE:
            raise AssertionError(f"it waits for {waited[0]:.0f} seconds")

    transfer.pause = pause
    for name in (
        "HF_TOKEN",
        "HTTP_PROXY",
        "http_proxy",
        "ALL_PROXY",
        "all_proxy",
        "HF_HUB_OFFLINE",
    ):
        os.environ.pop(name, None)
    with hub_server.serve() as hub:
        hub.large = told.get("large", 1_000_000)
        files: dict[str, Any] = dict(told["files"])
        if "changed" in told:
            files[FILE] = Changing(files[FILE], told["changed"], told.get("after", 1))
        if told.get("drip"):
            hub_server.CHUNK = 1
            files[FILE] = Dripping(len(files[FILE]), {0: files[FILE]})
        hub.add(REPO, files)
        for fault in told.get("faults", ()):
            hub.fail(**fault)
        if told.get("loop"):
            hub.renamed[REPO] = REPO
        url = f"{hub.url}/{{repo_id}}/resolve/{{revision}}/{{filename}}"
        changes = {
            "ENDPOINT": hub.url,
            "HUGGINGFACE_CO_URL_TEMPLATE": url,
            "HF_HUB_OFFLINE": False,
            "HF_HUB_CACHE": str(scratch / "hub"),
            "HF_TOKEN_PATH": str(scratch / "token"),
            "HF_HUB_DISABLE_TELEMETRY": True,
            "HF_HUB_DOWNLOAD_TIMEOUT": 1,
            "HF_HUB_ETAG_TIMEOUT": 1,
            "HF_HUB_DISABLE_PROGRESS_BARS": True,
        }
        for name, value in changes.items():
            setattr(constants, name, value)
        close_session()
        try:
            yield
        finally:
            hub.closing.set()
            close_session()


def make(rng: random.Random) -> Case:
    """Make one repository with one fault or several."""
    return build.pick(
        rng,
        (2, _sound),
        (4, _status),
        (4, _headers),
        (4, _body),
        (3, _page),
        (3, _changing),
        (2, _files),
        (1, _names),
        (1, _drip),
    )(rng)


def _tensors(rng: random.Random) -> bytes:
    return build.safetensors({TENSOR: build.table(rng, 16, 4), "b": build.table(rng, 16, 4)})


def _case(
    what: str, content: bytes, *faults: dict[str, Any], expected: Any = "any", **hub: Any
) -> Case:
    config = {"model_type": "gpt2", "n_positions": 16}
    files = {FILE: content, "config.json": json.dumps(config).encode(), **hub.pop("more", {})}
    truths = {"truth.safetensors": content}
    if "changed" in hub:
        truths["new.safetensors"] = hub["changed"]
    return Case(
        what,
        ("extract", REPO, "--tensor", TENSOR, "-o", "out.npy"),
        truths,
        read=("|".join(truths), TENSOR),
        outputs=("out.npy",),
        hub={"files": files, "faults": list(faults), **hub},
        expected=expected,
    )


def _match(rng: random.Random) -> dict[str, Any]:
    return {
        "match": rng.choice(("/api/", "config.json", FILE, FILE, "/")),
        "times": rng.choice((1, 2, 5, 1_000_000)),
    }


def _large(rng: random.Random) -> dict[str, Any]:
    return {"large": rng.choice((10, 1_000_000))}


def _sound(rng: random.Random) -> Case:
    return _case("sound", _tensors(rng), expected="accepted", **_large(rng))


def _status(rng: random.Random) -> Case:
    status = rng.choice(
        (
            400,
            401,
            403,
            404,
            408,
            416,
            418,
            429,
            451,
            500,
            502,
            503,
            504,
            520,
            599,
            204,
            205,
            206,
            203,
            300,
            304,
        )
    )
    bad = (
        rng.choice(build.HOSTILE)
        .replace("\n", " ")
        .replace("\r", " ")
        .encode("latin-1", "replace")
        .decode("latin-1")
    )
    headers: dict[str, Any] = rng.choice(
        (
            {},
            {
                "Retry-After": rng.choice(
                    (
                        "0",
                        "5",
                        "999999999999",
                        "-1",
                        "soon",
                        "Wed, 21 Oct 2099 07:28:00 GMT",
                        "Fri, 31 Dec 9999 23:59:59 -2359",
                        "Mon, 01 Jan 0001 00:00:00 +2359",
                        "1e5",
                        "٣",
                        "Fri, 31 Dec 99999 23:59:59 GMT",
                        "9" * 500,
                        "nan",
                    )
                )
            },
            {
                "RateLimit": rng.choice(
                    (
                        '"api";r=0;t=55',
                        '"api";r=0;t=' + "9" * 400,
                        ";r=0;t=\u0663".encode().decode("latin-1"),
                    )
                )
            },
            {
                "X-Error-Code": rng.choice(
                    ("GatedRepo", "RepoNotFound", "RevisionNotFound", "EntryNotFound", bad)
                )
            },
            {"X-Error-Message": bad},
            {"X-Error-Message": bad, "X-Error-Code": "GatedRepo"},
            {"Location": "http://127.0.0.1:9/x"},
        )
    )
    fault = {"kind": "status", "status": status, "headers": _latin(headers), **_match(rng)}
    return _case(f"status {status} {sorted(headers)}", _tensors(rng), fault, **_large(rng))


def _latin(headers: dict[str, Any]) -> dict[str, Any]:
    """Keep what can be sent as a header."""
    return {
        name: value.encode("latin-1", "replace").decode("latin-1") if value else value
        for name, value in headers.items()
    }


def _headers(rng: random.Random) -> Case:
    headers = rng.choice(
        (
            {
                "Content-Range": rng.choice(
                    (
                        None,
                        "bytes 0-9/10",
                        "bytes */100",
                        "bytes 5-1/10",
                        "bytes 0-99999999999/99999999999",
                        "items 0-5/10",
                        "bytes 0-0/0",
                        "x",
                        "\x1b[2J",
                        "bytes 8-63/64",
                    )
                )
            },
            {
                "Content-Length": rng.choice(
                    (None, "0", "5", "99999999999999999999", "-1", "x", "1e3")
                )
            },
            {"Content-Encoding": rng.choice(("gzip", "br", "identity", "x", "deflate"))},
            {"X-Repo-Commit": rng.choice((None, "0" * 40, "main", "\x1b[2J", ""))},
            {"ETag": rng.choice((None, '""', '"x"', 'W/"x"', "\x1b[2J", "x" * 5000))},
            {"X-Linked-Size": rng.choice((None, "0", "-5", "9" * 30, "x"))},
            {"X-Linked-Etag": '"other"'},
            {
                "Location": rng.choice(
                    (
                        None,
                        "",
                        "http://127.0.0.1:9/",
                        "file:///etc/passwd",
                        "//evil.example/",
                        "x" * 9000,
                        "http://[::1",
                        "\x1b[2J",
                        "javascript:x",
                    )
                )
            },
            {"Transfer-Encoding": "chunked"},
            {"Content-Type": "multipart/byteranges; boundary=x"},
            {"Set-Cookie": "a=" + "b" * 9000},
            {f"X-{n}": "y" for n in range(300)},
        )
    )
    fault = {"kind": "headers", "headers": headers, **_match(rng)}
    return _case(f"headers {sorted(headers)[:3]}", _tensors(rng), fault, **_large(rng))


def _body(rng: random.Random) -> Case:
    kind = rng.choice(("whole", "short", "cut", "hang", "body", "body"))
    fault: dict[str, Any] = {"kind": kind, **_match(rng)}
    if kind in ("short", "cut", "hang"):
        fault["after"] = rng.choice((0, 1, 8, 100, 300))
    if kind == "hang":
        fault["times"] = 1
    if kind == "body":
        fault["body"] = rng.choice(
            (
                b"",
                b"<html>sign in</html>",
                b"{}",
                b"[]",
                b"null",
                b"\xff" * 100,
                b'{"sha": "' + b"a" * 40 + b'"}',
                b"\x00" * 300,
                b"[" * 100_000,
                b'{"a":' * 50_000,
                b'"' + b"\x1b[2J" * 9 + b'"',
                b"9" * 5000,
                b"version https://git-lfs.github.com/spec/v1\n",
            )
        )
    return _case(f"body: {kind}", _tensors(rng), fault, **_large(rng))


def _page(rng: random.Random) -> Case:
    """Answer the question for a repository with a page that is damaged or hostile."""
    siblings: Any = [{"rfilename": FILE}, {"rfilename": "config.json"}]
    page: Any = {"id": REPO, "modelId": REPO, "sha": "a" * 40, "siblings": siblings}
    kind = rng.choice(("mutated", "mutated", "name", "many", "sha"))
    if kind == "mutated":
        page = build.mutated(rng, page)
    elif kind == "name":
        siblings.append(
            {
                "rfilename": rng.choice(
                    (
                        *build.HOSTILE,
                        "../x.bin",
                        "/etc/passwd",
                        "a\\b.bin",
                        "model.safetensors.index.json",
                    )
                )
            }
        )
    elif kind == "many":
        page["siblings"] = [{"rfilename": f"x{n}.txt"} for n in range(20_000)] + siblings
    else:
        page["sha"] = rng.choice(
            (None, "", "main", "A" * 40, "a" * 39, "a" * 64, "\x1b[2J", "../" * 14, 7, ["a" * 40])
        )
    fault = {"kind": "body", "match": "/api/models", "body": build.dumps(page)}
    return _case(f"page: {kind}", _tensors(rng), fault)


def _changing(rng: random.Random) -> Case:
    """Replace the file while it is read; where the server tells, its ETag changes as well."""
    old, new = _tensors(rng), _tensors(rng)
    kind = rng.choice(("same length", "longer", "told"))
    if kind == "longer":
        new = build.safetensors({TENSOR: build.table(rng, 32, 4), "b": build.table(rng, 16, 4)})
    after = rng.choice((1, 1, 2))
    faults: list[dict[str, Any]] = [
        {"kind": "headers", "match": FILE, "times": after},
        {
            "kind": "headers",
            "match": FILE,
            "headers": {"ETag": '"another"', "X-Linked-Etag": '"another"'},
        },
    ]
    # A server that tells nothing can be found out by a digest alone, which it need not give.
    return _case(
        f"a file that changes: {kind}", old, *faults, changed=new, after=after, **_large(rng)
    )


def _files(rng: random.Random) -> Case:
    """Publish damaged files."""
    content = _tensors(rng)
    kind = rng.choice(("safetensors", "config", "index", "npz"))
    if kind == "safetensors":
        what, content = build.damage(rng, content)
        return _case(f"a damaged file: {what}", content, **_large(rng))
    if kind == "config":
        config = build.dumps(
            build.mutated(rng, {"model_type": "gpt2", "n_positions": 16, "architectures": ["x"]})
        )
        return _case("a mutated configuration", content, more={"config.json": config})
    index = build.dumps(
        build.mutated(rng, {"weight_map": {TENSOR: "m1.safetensors", "b": "m2.safetensors"}})
    )
    case = _case("a mutated index", content)
    files = {
        "model.safetensors.index.json": index,
        "m1.safetensors": content,
        "m2.safetensors": _tensors(rng),
    }
    return Case(
        case.what, case.argv, case.files, read=case.read, outputs=case.outputs, hub={"files": files}
    )


def _names(rng: random.Random) -> Case:
    """Ask for ids and revisions that are odd."""
    ref = rng.choice(
        (
            "me--model",
            "a/b--c",
            "owner/model@" + "x" * 300,
            "owner/model@../..",
            "owner/model@main#x",
            "nope/x",
            "owner/.model",
            "owner/model.git",
            "owner/model@%2e%2e",
            "a" * 96 + "/b",
            "owner/model@ ",
        )
    )
    fault: tuple[dict[str, Any], ...] = ()
    case = _case(f"the id {ref[:30]}", _tensors(rng), *fault, loop=rng.random() < 0.2)
    return Case(case.what, ("inspect", ref), hub=case.hub)


def _drip(rng: random.Random) -> Case:
    """Send a byte now and then."""
    return _case("a hundred bytes a second", _tensors(rng), drip=True)


WARM: tuple[tuple[str, ...], ...] = ()


def prepare() -> None:
    """Import the client with all that its first request imports."""
    from huggingface_hub import close_session, get_session

    from posprobe.checkpoints.hub import open_hub

    assert callable(open_hub)
    get_session()
    close_session()
