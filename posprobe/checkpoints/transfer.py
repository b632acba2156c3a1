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

from posprobe.checkpoints.hub_local import MAX_SHARED_WAIT_SECONDS, shared_requests
from posprobe.data import read_data
from posprobe.errors import PosprobeError, UnknownReference, Unreachable, explain_errors
from posprobe.progress import stage

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from huggingface_hub import ModelInfo

#: Attempts of one request: with the waits below, an outage of 3.5 seconds is bridged.
MAX_ATTEMPTS = 4
#: Wait in seconds before the second attempt; each further wait is twice as long.
FIRST_WAIT_SECONDS = 0.5
#: Longest wait in seconds that a server may ask for; a longer one ends in an error that states it.
MAX_WAIT_SECONDS = 10.0
#: Longest time in seconds until an answer begins, or until a short answer ends.
MAX_REQUEST_SECONDS = 60.0
#: Lowest mean rate of a body, in bytes per second, after the first `BODY_GRACE_SECONDS` seconds.
MIN_BYTES_PER_SECOND = 1024.0
#: Time in seconds after which the rate of a body counts: a proxy may begin slowly.
BODY_GRACE_SECONDS = 15.0
#: Function that waits; tests replace it.
pause: Callable[[float], None] = time.sleep

#: Commit ids of the Hub, SHA-1 or SHA-256.
COMMIT_PATTERN = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
#: Lengths in bytes in the headers of an answer.
_LENGTH_PATTERN = re.compile(r"[0-9]{1,18}")

_log = logging.getLogger("posprobe")
_T = TypeVar("_T")


class ReplacedFile(Unreachable):
    """The bytes that came are of another version of the file than those that were read before."""


@dataclass(frozen=True)
class Version:
    """The identity of one version of a file.

    Parameters
    ----------
    etag
        ETag of the Hub, which identifies the content; empty if the Hub sends none.
    size
        Length of the file in bytes; None if the Hub does not send it.
    """

    etag: str = ""
    size: int | None = None


def exceeds_request_limit(seconds: float) -> bool:
    """Tell whether a request without a long answer takes longer than `MAX_REQUEST_SECONDS`."""
    return seconds > MAX_REQUEST_SECONDS


def request_patiently(
    subject: str,
    attempt: Callable[[], _T],
    is_too_slow: Callable[[float], bool] = exceeds_request_limit,
) -> _T:
    """Make a request, and repeat it after transient failures: transport errors, 408, 429, 5xx.

    A server that sends a byte now and then is never silent, so the time of each attempt is limited
    as well. Where processes share requests (`posprobe.checkpoints.hub_local`), all of them obey a
    server that asks one to wait, and for longer: servers limit requests because of many readers.

    Parameters
    ----------
    subject
        Repository, revision and file, for messages.
    attempt
        Function that makes the request once. It raises ``HfHubHTTPError`` for a status that is not
        an answer and ``HTTPError`` for a connection or body that broke off.
    is_too_slow
        Predicate of the seconds that an attempt has taken: whether to give it up.

    Raises
    ------
    UnknownReference
        If the Hub has no such repository, revision or file.
    Unreachable
        If it refuses, or fails at every attempt.
    """
    for attempt_number in range(MAX_ATTEMPTS):
        planned_wait, requested_wait = FIRST_WAIT_SECONDS * 2**attempt_number, 0.0
        try:
            with stage(f"Hub: {subject}"):
                return _run_in_time(subject, attempt, is_too_slow)
        except HfHubHTTPError as error:
            failure: HTTPError = error
            status, headers = error.response.status_code, error.response.headers
            if status not in (408, 429) and status < 500:
                raise _refusal_error(status, headers, subject) from error
            requested_wait = _requested_wait(headers)
        except HTTPError as error:
            failure = error
        queue = shared_requests.get()
        if requested_wait > (
            MAX_WAIT_SECONDS if queue is None else MAX_SHARED_WAIT_SECONDS
        ):
            raise Unreachable(
                f"{subject}: {_describe_failure(failure)}, and the Hub asks "
                f"to wait {requested_wait:.0f} seconds. Run it again after "
                "that; requests with a token (HF_TOKEN) have higher limits."
            ) from failure
        if queue is not None and requested_wait:
            queue.delay_requests(requested_wait)
            requested_wait = 0.0
        if attempt_number + 1 < MAX_ATTEMPTS:
            _log.info("%s: %s, trying again", subject, _describe_failure(failure))
            pause(max(planned_wait, requested_wait))
    raise Unreachable(
        f"{subject}: {_describe_failure(failure)}. Check the network, the "
        "proxy and HF_ENDPOINT, or try later; `offline=True` uses the local "
        "cache."
    ) from failure


def _run_in_time(
    subject: str, attempt: Callable[[], _T], is_too_slow: Callable[[float], bool]
) -> _T:
    """Run a request in its own thread, which is abandoned if it takes too long."""
    result: Future[_T] = Future()
    queue = shared_requests.get()
    slot = queue.wait_for_slot(pause) if queue is not None else None

    def run() -> None:
        try:
            result.set_result(attempt())
        except BaseException as error:  # noqa: BLE001 - it is raised where it is waited for
            result.set_exception(error)
        finally:
            # An abandoned request goes on until its connection ends.
            if slot is not None:
                slot.release()

    start_time = time.monotonic()
    threading.Thread(target=run, daemon=True, name="posprobe request").start()
    while not wait([result], timeout=0.5).done:
        seconds = time.monotonic() - start_time
        if is_too_slow(seconds):
            raise Unreachable(
                f"{subject}: the answer is too slow (given up after "
                f"{seconds:.0f} seconds). Check the network and the proxy, "
                "or try later."
            )
    return result.result()


def model_info(repo_id: str, revision: str | None) -> ModelInfo:
    """Request the commit of a revision (``sha``) and its files (``siblings``).

    Raises
    ------
    UnknownReference, Unreachable
        As `request_patiently`; also if the id is impossible or the answer is not a model's page.
    """
    subject = f"{repo_id}@{revision}" if revision else repo_id
    api, timeout = HfApi(library_name="posprobe"), constants.HF_HUB_DOWNLOAD_TIMEOUT
    with _explain_answers(subject, "a model's page"):
        info = request_patiently(
            subject,
            lambda: api.model_info(
                repo_id, revision=revision, timeout=timeout, expand=["sha", "siblings"]
            ),
        )
        if not COMMIT_PATTERN.fullmatch(str(info.sha)):
            raise ValueError(f"its commit is {info.sha!r}")
        return info


def list_revisions(repo_id: str) -> list[tuple[str, str]]:
    """List branches, tags and the main branch's commits: name or first line of the message, commit.

    Raises
    ------
    UnknownReference, Unreachable
        As `request_patiently`; also if an answer is no such list.
    """
    api = HfApi(library_name="posprobe")
    with _explain_answers(repo_id, "a list of revisions"):
        refs = request_patiently(repo_id, lambda: api.list_repo_refs(repo_id))
        commits = request_patiently(repo_id, lambda: api.list_repo_commits(repo_id))
        named_commits = [
            (ref.name, ref.target_commit) for ref in (*refs.branches, *refs.tags)
        ]
        named_commits += [
            (commit.title, commit.commit_id) for commit in reversed(commits)
        ]
        return [
            (str(name), commit)
            for name, commit in named_commits
            if COMMIT_PATTERN.fullmatch(str(commit))
        ]


@contextmanager
def _explain_answers(subject: str, request_name: str) -> Iterator[None]:
    """Turn exceptions about an invalid id or an unexpected answer into errors for the user."""
    try:
        yield
    except HFValidationError as error:
        raise UnknownReference(
            f"{subject}: not a valid Hub id. Write NAME or OWNER/NAME as on "
            "the model's page, or check the path if a file was meant."
        ) from error
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise Unreachable(
            f"{subject}: the answer is not {request_name} "
            f"({str(error)[:80]}). Something other than the Hub may have "
            "answered: check the proxy, the network's sign-in page and "
            "HF_ENDPOINT."
        ) from error


def read_range(
    repo_id: str,
    commit: str,
    file: str,
    start: int,
    stop: int,
    version: Version | None = None,
) -> tuple[bytes, Version]:
    """Read the bytes ``start`` to ``stop`` of a file on the Hub, fewer where the file ends before.

    A commit never changes; a mirror, a proxy or a branch that is read by name can. Every answer
    states the version of its content, and all of them must agree.

    Parameters
    ----------
    repo_id, commit, file, start, stop
        Repository, commit, file and byte range.
    version
        Version of the file that earlier reads saw; None for the first read.

    Returns
    -------
    tuple
        The bytes, and the version of the file that they are from.

    Raises
    ------
    ReplacedFile
        If they are of another version or commit.
    UnknownReference, Unreachable
        As `request_patiently`; also if the answer is not the requested range, or arrives more
        slowly than `MIN_BYTES_PER_SECOND`.
    """
    subject, received = f"{repo_id}/{file}", bytearray()
    expected_version = version or Version()
    #: Time at which the body of this attempt began, and bytes received before it.
    body_start: tuple[float, int] | None = None
    headers = _range_headers()

    def is_body_too_slow(seconds: float) -> bool:
        if body_start is None:
            return exceeds_request_limit(seconds)
        elapsed = time.monotonic() - body_start[0]
        n_expected = MIN_BYTES_PER_SECOND * elapsed
        return elapsed > BODY_GRACE_SECONDS and len(received) - body_start[1] < n_expected

    def receive() -> None:
        """Extend ``received`` to the whole range, without requesting again what has arrived."""
        nonlocal body_start, expected_version
        body_start = None
        with get_session().stream(
            "GET",
            hf_hub_url(repo_id, file, revision=commit),
            headers={**headers, "Range": f"bytes={start + len(received)}-{stop - 1}"},
            timeout=constants.HF_HUB_DOWNLOAD_TIMEOUT,
            follow_redirects=True,
        ) as response:
            status, fields = response.status_code, response.headers
            if (
                status == 416
                and start == 0
                and fields.get("Content-Range") == "bytes */0"
            ):
                expected_version = Version(expected_version.etag, 0)
                return
            if status >= 300:
                raise HfHubHTTPError(f"status {status}", response=response)
            if status == 200 and start == 0:
                received.clear()  # the server sends the whole file from its beginning
            advice = f"Fetch it with `hf download {repo_id} {file}`."
            with explain_errors(
                Unreachable, f"{subject}: another answer", advice, ValueError
            ):
                end, size = _check_range(status, fields, start + len(received), stop)
            answers = [*response.history, response]
            expected_version = _merge_versions(
                expected_version, answers, size, commit, subject
            )
            body_start = time.monotonic(), len(received)
            for chunk in response.iter_raw():
                received.extend(chunk)
                if start + len(received) >= (stop if end is None else end):
                    break  # leaving the block closes the connection, with the rest unread
        received_stop = start + len(received)
        if end is None and received_stop < stop:
            expected_version = Version(expected_version.etag, received_stop)
        elif end is not None and received_stop < end:
            raise HTTPError(
                f"the answer broke off {end - received_stop} bytes before its end"
            )

    request_patiently(subject, receive, is_body_too_slow)
    return bytes(received[: stop - start]), expected_version


def _range_headers() -> dict[str, str]:
    headers = build_hf_headers(
        library_name="posprobe", library_version=version_of("posprobe")
    )
    return {
        **headers,
        "Accept-Encoding": "identity",
    }  # a range counts bytes as they are sent


def _merge_versions(
    expected_version: Version,
    answers: list[Any],
    size: int | None,
    commit: str,
    subject: str,
) -> Version:
    """Check that answers are of the expected commit and version, and return that version.

    The Hub's own ETag identifies the content; the ETag of the server that it redirects to does not.
    """
    for answer in answers:
        other_commit = answer.headers.get("X-Repo-Commit", commit)
        if other_commit != commit:
            raise ReplacedFile(
                f"{subject}: commit {commit[:12]} was asked for and "
                f"{other_commit[:12]!r} came. Something else than the Hub "
                "may have answered: check HF_ENDPOINT."
            )
    linked_sizes = [answer.headers.get("X-Linked-Size", "") for answer in answers]
    other_sizes = {
        int(text)
        for text in linked_sizes
        if size is not None and _LENGTH_PATTERN.fullmatch(text)
    }
    linked_etags = [answer.headers.get("X-Linked-Etag", "") for answer in answers]
    etag = next(filter(None, linked_etags), answers[-1].headers.get("ETag", ""))
    etags = {expected_version.etag, str(etag).removeprefix("W/").strip('"')[:200]} - {""}
    sizes = {*other_sizes, expected_version.size, size} - {None}
    if len(etags) > 1 or len(sizes) > 1:
        raise ReplacedFile(
            f"{subject}: the file was replaced since its beginning was read. Run it again."
        )
    return Version(next(iter(etags), ""), next(iter(sizes), None))


def _check_range(
    status: int, headers: Mapping[str, str], start: int, stop: int
) -> tuple[int | None, int | None]:
    """Check that an answer begins at ``start``; return its end and the file's length.

    Bytes from any other offset would be wrong numbers in a table, without a sign of it.
    """
    if headers.get("Content-Encoding", "identity") != "identity":
        raise ValueError("the server compresses what it was asked to send as it is")
    if status == 206:
        content_range = headers.get("Content-Range", "")
        match = re.fullmatch(
            r"bytes ([0-9]{1,18})-([0-9]{1,18})/([0-9]{1,18})", content_range
        )
        first, last, size = map(int, match.groups()) if match else (0, -1, 0)
        if first == start <= last < min(size, stop):
            return min(stop, size), size
        raise ValueError(
            f"bytes {start}-{stop - 1} were asked for and {content_range[:80]!r} are sent"
        )
    if status != 200 or start:
        raise ValueError(
            "the server sends only whole files, not the byte range asked for"
        )
    content_length = headers.get("Content-Length", "")
    if not _LENGTH_PATTERN.fullmatch(content_length):
        return None, None
    return min(stop, int(content_length)), int(content_length)


def _refusal_error(
    status: int, headers: Mapping[str, str], subject: str
) -> PosprobeError:
    """Return the error for a status that no further attempt changes."""
    code, server_message = (
        headers.get("X-Error-Code"),
        headers.get("X-Error-Message", "")[:200],
    )
    for refusal in read_data("checkpoints/refusals.toml")["refusals"]:
        is_known = code in refusal.get("codes", ()) or status in refusal.get(
            "statuses", ()
        )
        if is_known and server_message.startswith(refusal.get("said", "")):
            error_type = UnknownReference if refusal.get("unknown") else Unreachable
            reason, ranges = (
                server_message or "no reason given",
                headers.get("Content-Range"),
            )
            explanation = refusal["means"].format(
                status=status, reason=reason, ranges=ranges
            )
            return error_type(f"{subject}: {explanation}")
    return Unreachable(
        f"{subject}: the Hub answers with status {status} ({server_message}). Try again later."
    )


def _requested_wait(headers: Mapping[str, str]) -> float:
    """Return the seconds that a server asks to wait, 0 if it asks for none."""
    retry_after = headers.get("Retry-After", "").strip()
    if re.fullmatch(r"[0-9]{1,300}", retry_after):
        return float(retry_after)
    # The Hub's own limits come as: RateLimit: "api";r=0;t=55
    if limit := re.search(
        r";\s*r\s*=\s*0\s*;\s*t\s*=\s*([0-9]{1,300})", headers.get("RateLimit", "")
    ):
        return float(limit[1])
    return 0.0


def _describe_failure(error: HTTPError) -> str:
    if isinstance(error, HfHubHTTPError):
        return f"the Hub answers with status {error.response.status_code}"
    message = re.sub(r"^\[Errno -?\d+\] ", "", str(error).strip())
    return f"the Hugging Face Hub cannot be reached ({message or type(error).__name__})"
