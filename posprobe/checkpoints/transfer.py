"""Requests to the Hub: patience with what passes, one clear error for what does not.

Everything goes through huggingface_hub's own session, so its tokens, proxies, endpoint and offline
switch hold here too. Neither its ``http_backoff`` nor its file system is used: both wait as long as
a server tells them to and begin a body that was cut short again; the file system also takes what
comes for the range that it asked for, and asks anew for each file's size.
"""

from __future__ import annotations

import logging
import re
import threading
import time
from concurrent.futures import Future, wait
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version as version_of
from typing import TYPE_CHECKING, Any, TypeVar

from huggingface_hub import HfApi, constants, get_session, hf_hub_url

# The base class of transport errors comes from httpx or its successor, whichever the installed
# huggingface_hub is built on; it does not list the name among its exports.
from huggingface_hub.errors import (  # type: ignore[attr-defined]
    HfHubHTTPError,
    HFValidationError,
    HTTPError,
)
from huggingface_hub.utils import build_hf_headers  # type: ignore[attr-defined]

from posprobe.checkpoints.hub_local import PATIENCE, sharing
from posprobe.data import read_data
from posprobe.errors import PosprobeError, UnknownReference, Unreachable, explain_errors
from posprobe.progress import stage

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from huggingface_hub import ModelInfo

ATTEMPTS = 4
#: Seconds before the second attempt; each further wait is twice as long.
FIRST_WAIT = 0.5
#: Longest wait in seconds that a server may ask for; a longer one is told to the user instead.
LONGEST_WAIT = 10.0
#: Seconds that an answer may take to begin, and one without a body that is asked for to end.
LONGEST_REQUEST = 60.0
#: Bytes per second that a body must come with in the mean, once `GRACE` seconds are over.
LEAST_RATE, GRACE = 1024.0, 15.0
#: How a wait is spent.
pause: Callable[[float], None] = time.sleep

#: How a commit and a length are written.
COMMIT = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
_LENGTH = re.compile(r"[0-9]{1,18}")

_log = logging.getLogger("posprobe")
_T = TypeVar("_T")


class Replaced(Unreachable):
    """The bytes that came are of another version of the file than those that were read before."""


@dataclass(frozen=True)
class Version:
    """What tells one version of a file from another.

    Parameters
    ----------
    etag
        The Hub's own, which stands for the content; empty where none is told.
    size
        Length of the whole file in bytes, None where it is not told.
    """

    etag: str = ""
    size: int | None = None


def too_late(seconds: float) -> bool:
    """Tell whether a request without a long answer takes longer than `LONGEST_REQUEST`."""
    return seconds > LONGEST_REQUEST


def patiently(
    where: str, attempt: Callable[[], _T], given_up: Callable[[float], bool] = too_late
) -> _T:
    """Make a request, again where a failure may pass: transport errors, 408, 429 and 5xx.

    A server that sends a byte now and then is never silent, so the time of each attempt is limited
    as well. Where requests are shared (`posprobe.checkpoints.hub_local`), a server that asks one of
    them to wait is obeyed by all, and for longer: many readers are what it has limits for.

    Parameters
    ----------
    where
        Repository, revision and file, for messages.
    attempt
        Makes the request once. It raises ``HfHubHTTPError`` for a status that is not an answer and
        ``HTTPError`` for a connection or body that broke off.
    given_up
        Whether an attempt that has taken so many seconds is too slow to go on.

    Raises
    ------
    UnknownReference
        If the Hub has no such repository, revision or file.
    Unreachable
        If it refuses, or fails at every attempt.
    """
    for number in range(ATTEMPTS):
        own, asked = FIRST_WAIT * 2**number, 0.0
        try:
            with stage(f"Hub: {where}"):
                return _in_time(where, attempt, given_up)
        except HfHubHTTPError as error:
            failure: HTTPError = error
            status, headers = error.response.status_code, error.response.headers
            if status not in (408, 429) and status < 500:
                raise _refusal(status, headers, where) from error
            asked = _requested_wait(headers)
        except HTTPError as error:
            failure = error
        shared = sharing.get()
        if asked > (LONGEST_WAIT if shared is None else PATIENCE):
            raise Unreachable(
                f"{where}: {_reason(failure)}, and the Hub asks to wait {asked:.0f} seconds. "
                "Run it again after that; requests with a token (HF_TOKEN) have higher limits."
            ) from failure
        if shared is not None and asked:
            shared.put_off(asked)
            asked = 0.0
        if number + 1 < ATTEMPTS:
            _log.info("%s: %s, trying again", where, _reason(failure))
            pause(max(own, asked))
    raise Unreachable(
        f"{where}: {_reason(failure)}. Check the network, the proxy and HF_ENDPOINT, or try later; "
        "--offline uses the local cache."
    ) from failure


def _in_time(where: str, attempt: Callable[[], _T], given_up: Callable[[float], bool]) -> _T:
    """Run a request in a thread of its own, which is left behind where it takes too long."""
    done: Future[_T] = Future()
    shared = sharing.get()
    held = shared.enter(pause) if shared is not None else None

    def run() -> None:
        try:
            done.set_result(attempt())
        except BaseException as error:  # noqa: BLE001 - it is raised where it is waited for
            done.set_exception(error)
        finally:
            # A request that was given up goes on until its connection ends.
            if held is not None:
                held.release()

    begin = time.monotonic()
    threading.Thread(target=run, daemon=True, name="posprobe request").start()
    while not wait([done], timeout=0.5).done:
        seconds = time.monotonic() - begin
        if given_up(seconds):
            raise Unreachable(
                f"{where}: the answer is too slow (given up after {seconds:.0f} seconds). "
                "Check the network and the proxy, or try later."
            )
    return done.result()


def model_info(repo_id: str, revision: str | None) -> ModelInfo:
    """Ask which commit a revision is (``sha``) and which files it has (``siblings``).

    Raises
    ------
    UnknownReference, Unreachable
        As `patiently`; also if the id is impossible or the answer is not a model's page.
    """
    where = f"{repo_id}@{revision}" if revision else repo_id
    api, timeout = HfApi(library_name="posprobe"), constants.HF_HUB_DOWNLOAD_TIMEOUT
    with _answering(where, "a model's page"):
        info = patiently(
            where,
            lambda: api.model_info(
                repo_id, revision=revision, timeout=timeout, expand=["sha", "siblings"]
            ),
        )
        if not COMMIT.fullmatch(str(info.sha)):
            raise ValueError(f"its commit is {info.sha!r}")
        return info


def all_revisions(repo_id: str) -> list[tuple[str, str]]:
    """List branches, tags and the main branch's commits: name or first line of the message, commit.

    Raises
    ------
    UnknownReference, Unreachable
        As `patiently`; also if an answer is no such list.
    """
    api = HfApi(library_name="posprobe")
    with _answering(repo_id, "a list of revisions"):
        refs = patiently(repo_id, lambda: api.list_repo_refs(repo_id))
        commits = patiently(repo_id, lambda: api.list_repo_commits(repo_id))
        named = [(ref.name, ref.target_commit) for ref in (*refs.branches, *refs.tags)]
        named += [(commit.title, commit.commit_id) for commit in reversed(commits)]
        return [(str(name), commit) for name, commit in named if COMMIT.fullmatch(str(commit))]


@contextmanager
def _answering(where: str, what: str) -> Iterator[None]:
    """Say that an answer is not what was asked for, or that nobody can be asked by such an id."""
    try:
        yield
    except HFValidationError as error:
        raise UnknownReference(
            f"{where}: not a valid Hub id. Write NAME or OWNER/NAME as on the model's page, or "
            "check the path if a file was meant."
        ) from error
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise Unreachable(
            f"{where}: the answer is not {what} ({str(error)[:80]}). Something other than the Hub "
            "may have answered: check the proxy, the network's sign-in page and HF_ENDPOINT."
        ) from error


def read_range(
    repo_id: str, commit: str, file: str, start: int, stop: int, version: Version | None = None
) -> tuple[bytes, Version]:
    """Read the bytes ``start`` to ``stop`` of a file on the Hub, fewer where the file ends before.

    A commit never changes; a mirror, a proxy or a branch that is read by name can. Every answer
    says of which content it is, and all of them must say the same.

    Parameters
    ----------
    repo_id, commit, file, start, stop
        What to read.
    version
        Of which version of the file, where something of it was read before.

    Returns
    -------
    tuple
        The bytes, and of which version of the file they are.

    Raises
    ------
    Replaced
        If they are of another version or commit.
    UnknownReference, Unreachable
        As `patiently`; also if the answer is not the range that was asked for, or comes with less
        than `LEAST_RATE`.
    """
    where, got, known = f"{repo_id}/{file}", bytearray(), version or Version()
    #: When the body of this attempt began, and how much there was then.
    began: tuple[float, int] | None = None
    headers = build_hf_headers(library_name="posprobe", library_version=version_of("posprobe"))
    headers["Accept-Encoding"] = "identity"  # a range counts bytes as they are sent

    def given_up(seconds: float) -> bool:
        if began is None:
            return too_late(seconds)
        passed = time.monotonic() - began[0]
        return passed > GRACE and len(got) - began[1] < LEAST_RATE * passed

    def receive() -> None:
        """Extend ``got`` to the whole range; what arrived before is not asked for again."""
        nonlocal began, known
        began = None
        with get_session().stream(
            "GET",
            hf_hub_url(repo_id, file, revision=commit),
            headers={**headers, "Range": f"bytes={start + len(got)}-{stop - 1}"},
            timeout=constants.HF_HUB_DOWNLOAD_TIMEOUT,
            follow_redirects=True,
        ) as response:
            status, told = response.status_code, response.headers
            if status == 416 and start == 0 and told.get("Content-Range") == "bytes */0":
                known = Version(known.etag, 0)
                return
            if status >= 300:
                raise HfHubHTTPError(f"status {status}", response=response)
            if status == 200 and start == 0:
                got.clear()  # the whole file comes, from its beginning
            advice = f"Fetch it with `hf download {repo_id} {file}`."
            with explain_errors(Unreachable, f"{where}: another answer", advice, ValueError):
                end, size = _announced(status, told, start + len(got), stop)
            known = _joined(known, [*response.history, response], size, commit, where)
            began = time.monotonic(), len(got)
            for chunk in response.iter_raw():
                got.extend(chunk)
                if start + len(got) >= (stop if end is None else end):
                    break  # leaving the block closes the connection, with the rest unread
        have = start + len(got)
        if end is None and have < stop:
            known = Version(known.etag, have)
        elif end is not None and have < end:
            raise HTTPError(f"the answer broke off {end - have} bytes before its end")

    patiently(where, receive, given_up)
    return bytes(got[: stop - start]), known


def _joined(
    known: Version, answers: list[Any], size: int | None, commit: str, where: str
) -> Version:
    """Hold what answers say of their content against what was read before.

    The Hub's own ETag stands for a content, not that of the server which it redirects to.
    """
    for answer in answers:
        other = answer.headers.get("X-Repo-Commit", commit)
        if other != commit:
            raise Replaced(
                f"{where}: commit {commit[:12]} was asked for and {other[:12]!r} came. Something "
                "else than the Hub may have answered: check HF_ENDPOINT."
            )
    told = [answer.headers.get("X-Linked-Size", "") for answer in answers]
    others = {int(text) for text in told if size is not None and _LENGTH.fullmatch(text)}
    linked = [answer.headers.get("X-Linked-Etag", "") for answer in answers]
    tag = next(filter(None, linked), answers[-1].headers.get("ETag", ""))
    tags = {known.etag, str(tag).removeprefix("W/").strip('"')[:200]} - {""}
    sizes = {*others, known.size, size} - {None}
    if len(tags) > 1 or len(sizes) > 1:
        raise Replaced(
            f"{where}: the file was replaced since its beginning was read. Run it again."
        )
    return Version(next(iter(tags), ""), next(iter(sizes), None))


def _announced(
    status: int, headers: Mapping[str, str], begin: int, stop: int
) -> tuple[int | None, int | None]:
    """Check where an answer begins; return where to stop, and the file's length.

    Bytes from any other place would be wrong numbers in a table, without a sign of it.
    """
    if headers.get("Content-Encoding", "identity") != "identity":
        raise ValueError("the server compresses what it was asked to send as it is")
    if status == 206:
        told = headers.get("Content-Range", "")
        match = re.fullmatch(r"bytes ([0-9]{1,18})-([0-9]{1,18})/([0-9]{1,18})", told)
        first, last, size = map(int, match.groups()) if match else (0, -1, 0)
        if first == begin <= last < min(size, stop):
            return min(stop, size), size
        raise ValueError(f"bytes {begin}-{stop - 1} were asked for and {told[:80]!r} are sent")
    if status != 200 or begin:
        raise ValueError("the server sends only whole files, not the byte range asked for")
    length = headers.get("Content-Length", "")
    if not _LENGTH.fullmatch(length):
        return None, None
    return min(stop, int(length)), int(length)


def _refusal(status: int, headers: Mapping[str, str], where: str) -> PosprobeError:
    """Say what a status means that no further attempt will change."""
    code, said = headers.get("X-Error-Code"), headers.get("X-Error-Message", "")[:200]
    for rule in read_data("checkpoints/refusals.toml")["refusals"]:
        known = code in rule.get("codes", ()) or status in rule.get("statuses", ())
        if known and said.startswith(rule.get("said", "")):
            kind = UnknownReference if rule.get("unknown") else Unreachable
            reason, ranges = said or "no reason given", headers.get("Content-Range")
            means = rule["means"].format(status=status, reason=reason, ranges=ranges)
            return kind(f"{where}: {means}")
    return Unreachable(f"{where}: the Hub answers with status {status} ({said}). Try again later.")


def _requested_wait(headers: Mapping[str, str]) -> float:
    """Seconds that a server asks to wait, 0 where it asks for none."""
    told = headers.get("Retry-After", "").strip()
    if re.fullmatch(r"[0-9]{1,300}", told):
        return float(told)
    # The Hub's own limits come as: RateLimit: "api";r=0;t=55
    if limit := re.search(
        r";\s*r\s*=\s*0\s*;\s*t\s*=\s*([0-9]{1,300})", headers.get("RateLimit", "")
    ):
        return float(limit[1])
    return 0.0


def _reason(error: HTTPError) -> str:
    if isinstance(error, HfHubHTTPError):
        return f"the Hub answers with status {error.response.status_code}"
    said = re.sub(r"^\[Errno -?\d+\] ", "", str(error).strip())
    return f"the Hugging Face Hub cannot be reached ({said or type(error).__name__})"
