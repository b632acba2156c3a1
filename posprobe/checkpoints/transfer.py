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
    subject: str, attempt: Callable[[], _T], given_up: Callable[[float], bool] = too_late
) -> _T:
    """Make a request, again where a failure may pass: transport errors, 408, 429 and 5xx.

    A server that sends a byte now and then is never silent, so the time of each attempt is limited
    as well. Where requests are shared (`posprobe.checkpoints.hub_local`), a server that asks one of
    them to wait is obeyed by all, and for longer: many readers are what it has limits for.

    Parameters
    ----------
    subject
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
        own_wait, requested_wait = FIRST_WAIT * 2**number, 0.0
        try:
            with stage(f"Hub: {subject}"):
                return _in_time(subject, attempt, given_up)
        except HfHubHTTPError as error:
            failure: HTTPError = error
            status, headers = error.response.status_code, error.response.headers
            if status not in (408, 429) and status < 500:
                raise _refusal(status, headers, subject) from error
            requested_wait = _requested_wait(headers)
        except HTTPError as error:
            failure = error
        shared = sharing.get()
        if requested_wait > (LONGEST_WAIT if shared is None else PATIENCE):
            raise Unreachable(
                f"{subject}: {_reason(failure)}, and the Hub asks to wait {requested_wait:.0f} "
                "seconds. "
                "Run it again after that; requests with a token (HF_TOKEN) have higher limits."
            ) from failure
        if shared is not None and requested_wait:
            shared.put_off(requested_wait)
            requested_wait = 0.0
        if number + 1 < ATTEMPTS:
            _log.info("%s: %s, trying again", subject, _reason(failure))
            pause(max(own_wait, requested_wait))
    raise Unreachable(
        f"{subject}: {_reason(failure)}. Check the network, the proxy and HF_ENDPOINT, or try "
        "later; "
        "--offline uses the local cache."
    ) from failure


def _in_time(subject: str, attempt: Callable[[], _T], given_up: Callable[[float], bool]) -> _T:
    """Run a request in a thread of its own, which is left behind where it takes too long."""
    result: Future[_T] = Future()
    shared = sharing.get()
    slot = shared.enter(pause) if shared is not None else None

    def run() -> None:
        try:
            result.set_result(attempt())
        except BaseException as error:  # noqa: BLE001 - it is raised where it is waited for
            result.set_exception(error)
        finally:
            # A request that was given up goes on until its connection ends.
            if slot is not None:
                slot.release()

    begin = time.monotonic()
    threading.Thread(target=run, daemon=True, name="posprobe request").start()
    while not wait([result], timeout=0.5).done:
        seconds = time.monotonic() - begin
        if given_up(seconds):
            raise Unreachable(
                f"{subject}: the answer is too slow (given up after {seconds:.0f} seconds). "
                "Check the network and the proxy, or try later."
            )
    return result.result()


def model_info(repo_id: str, revision: str | None) -> ModelInfo:
    """Ask which commit a revision is (``sha``) and which files it has (``siblings``).

    Raises
    ------
    UnknownReference, Unreachable
        As `patiently`; also if the id is impossible or the answer is not a model's page.
    """
    subject = f"{repo_id}@{revision}" if revision else repo_id
    api, timeout = HfApi(library_name="posprobe"), constants.HF_HUB_DOWNLOAD_TIMEOUT
    with _answering(subject, "a model's page"):
        info = patiently(
            subject,
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
        named_commits = [(ref.name, ref.target_commit) for ref in (*refs.branches, *refs.tags)]
        named_commits += [(commit.title, commit.commit_id) for commit in reversed(commits)]
        return [
            (str(name), commit) for name, commit in named_commits if COMMIT.fullmatch(str(commit))
        ]


@contextmanager
def _answering(subject: str, request_name: str) -> Iterator[None]:
    """Say that an answer is not what was asked for, or that nobody can be asked by such an id."""
    try:
        yield
    except HFValidationError as error:
        raise UnknownReference(
            f"{subject}: not a valid Hub id. Write NAME or OWNER/NAME as on the model's page, or "
            "check the path if a file was meant."
        ) from error
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise Unreachable(
            f"{subject}: the answer is not {request_name} ({str(error)[:80]}). Something other "
            "than the Hub "
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
    subject, got, known_version = f"{repo_id}/{file}", bytearray(), version or Version()
    #: When the body of this attempt began, and how much there was then.
    started: tuple[float, int] | None = None
    headers = build_hf_headers(library_name="posprobe", library_version=version_of("posprobe"))
    headers["Accept-Encoding"] = "identity"  # a range counts bytes as they are sent

    def given_up(seconds: float) -> bool:
        if started is None:
            return too_late(seconds)
        passed = time.monotonic() - started[0]
        return passed > GRACE and len(got) - started[1] < LEAST_RATE * passed

    def receive() -> None:
        """Extend ``got`` to the whole range; what arrived before is not asked for again."""
        nonlocal started, known_version
        started = None
        with get_session().stream(
            "GET",
            hf_hub_url(repo_id, file, revision=commit),
            headers={**headers, "Range": f"bytes={start + len(got)}-{stop - 1}"},
            timeout=constants.HF_HUB_DOWNLOAD_TIMEOUT,
            follow_redirects=True,
        ) as response:
            status, response_headers = response.status_code, response.headers
            if (
                status == 416
                and start == 0
                and response_headers.get("Content-Range") == "bytes */0"
            ):
                known_version = Version(known_version.etag, 0)
                return
            if status >= 300:
                raise HfHubHTTPError(f"status {status}", response=response)
            if status == 200 and start == 0:
                got.clear()  # the whole file comes, from its beginning
            advice = f"Fetch it with `hf download {repo_id} {file}`."
            with explain_errors(Unreachable, f"{subject}: another answer", advice, ValueError):
                end, size = _announced(status, response_headers, start + len(got), stop)
            known_version = _joined(
                known_version, [*response.history, response], size, commit, subject
            )
            started = time.monotonic(), len(got)
            for chunk in response.iter_raw():
                got.extend(chunk)
                if start + len(got) >= (stop if end is None else end):
                    break  # leaving the block closes the connection, with the rest unread
        have = start + len(got)
        if end is None and have < stop:
            known_version = Version(known_version.etag, have)
        elif end is not None and have < end:
            raise HTTPError(f"the answer broke off {end - have} bytes before its end")

    patiently(subject, receive, given_up)
    return bytes(got[: stop - start]), known_version


def _joined(
    known_version: Version, answers: list[Any], size: int | None, commit: str, subject: str
) -> Version:
    """Hold what answers say of their content against what was read before.

    The Hub's own ETag stands for a content, not that of the server which it redirects to.
    """
    for answer in answers:
        other_commit = answer.headers.get("X-Repo-Commit", commit)
        if other_commit != commit:
            raise Replaced(
                f"{subject}: commit {commit[:12]} was asked for and {other_commit[:12]!r} came. "
                "Something "
                "else than the Hub may have answered: check HF_ENDPOINT."
            )
    linked_sizes = [answer.headers.get("X-Linked-Size", "") for answer in answers]
    other_sizes = {
        int(text) for text in linked_sizes if size is not None and _LENGTH.fullmatch(text)
    }
    linked = [answer.headers.get("X-Linked-Etag", "") for answer in answers]
    tag = next(filter(None, linked), answers[-1].headers.get("ETag", ""))
    tags = {known_version.etag, str(tag).removeprefix("W/").strip('"')[:200]} - {""}
    sizes = {*other_sizes, known_version.size, size} - {None}
    if len(tags) > 1 or len(sizes) > 1:
        raise Replaced(
            f"{subject}: the file was replaced since its beginning was read. Run it again."
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
        content_range = headers.get("Content-Range", "")
        match = re.fullmatch(r"bytes ([0-9]{1,18})-([0-9]{1,18})/([0-9]{1,18})", content_range)
        first, last, size = map(int, match.groups()) if match else (0, -1, 0)
        if first == begin <= last < min(size, stop):
            return min(stop, size), size
        raise ValueError(
            f"bytes {begin}-{stop - 1} were asked for and {content_range[:80]!r} are sent"
        )
    if status != 200 or begin:
        raise ValueError("the server sends only whole files, not the byte range asked for")
    length = headers.get("Content-Length", "")
    if not _LENGTH.fullmatch(length):
        return None, None
    return min(stop, int(length)), int(length)


def _refusal(status: int, headers: Mapping[str, str], subject: str) -> PosprobeError:
    """Say what a status means that no further attempt will change."""
    code, server_message = headers.get("X-Error-Code"), headers.get("X-Error-Message", "")[:200]
    for rule in read_data("checkpoints/refusals.toml")["refusals"]:
        is_known = code in rule.get("codes", ()) or status in rule.get("statuses", ())
        if is_known and server_message.startswith(rule.get("said", "")):
            kind = UnknownReference if rule.get("unknown") else Unreachable
            reason, ranges = server_message or "no reason given", headers.get("Content-Range")
            means = rule["means"].format(status=status, reason=reason, ranges=ranges)
            return kind(f"{subject}: {means}")
    return Unreachable(
        f"{subject}: the Hub answers with status {status} ({server_message}). Try again later."
    )


def _requested_wait(headers: Mapping[str, str]) -> float:
    """Seconds that a server asks to wait, 0 where it asks for none."""
    retry_after = headers.get("Retry-After", "").strip()
    if re.fullmatch(r"[0-9]{1,300}", retry_after):
        return float(retry_after)
    # The Hub's own limits come as: RateLimit: "api";r=0;t=55
    if limit := re.search(
        r";\s*r\s*=\s*0\s*;\s*t\s*=\s*([0-9]{1,300})", headers.get("RateLimit", "")
    ):
        return float(limit[1])
    return 0.0


def _reason(error: HTTPError) -> str:
    if isinstance(error, HfHubHTTPError):
        return f"the Hub answers with status {error.response.status_code}"
    message = re.sub(r"^\[Errno -?\d+\] ", "", str(error).strip())
    return f"the Hugging Face Hub cannot be reached ({message or type(error).__name__})"
