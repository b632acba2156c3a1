"""Requests to the Hub: byte ranges, patience with what passes, one clear error for what does not.

Everything goes through huggingface_hub's own session, so its tokens, proxies, endpoint and offline
switch hold here too. Its ``http_backoff`` is not used: it waits as long as a server tells it to,
and cannot resume a body that was cut short.
"""

from __future__ import annotations

import logging
import re
import time
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from importlib.metadata import version
from typing import TYPE_CHECKING, TypeVar

from huggingface_hub import HfApi, constants, get_session, hf_hub_url

# The base class of transport errors comes from httpx or its successor, whichever the installed
# huggingface_hub is built on; it does not list the name among its exports.
from huggingface_hub.errors import (  # type: ignore[attr-defined]
    HfHubHTTPError,
    HFValidationError,
    HTTPError,
)
from huggingface_hub.utils import build_hf_headers  # type: ignore[attr-defined]

from posprobe.errors import PosprobeError, UnknownReference, Unreachable

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from huggingface_hub import ModelInfo

ATTEMPTS = 4
#: Seconds before the second attempt; each further wait is twice as long.
FIRST_WAIT = 0.5
#: Longest wait in seconds that a server may ask for; a longer one is told to the user instead.
LONGEST_WAIT = 10.0
#: How a wait is spent.
pause: Callable[[float], None] = time.sleep

#: How a commit is written.
COMMIT = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")

_log = logging.getLogger("posprobe")
_T = TypeVar("_T")


def patiently(where: str, attempt: Callable[[], _T]) -> _T:
    """Make a request, again where a failure may pass: transport errors, 408, 429 and 5xx.

    Parameters
    ----------
    where
        Repository, revision and file, for messages.
    attempt
        Makes the request once. It raises ``HfHubHTTPError`` for a status that is no answer and
        ``HTTPError`` for a connection or body that broke off.

    Raises
    ------
    UnknownReference
        If the Hub has no such repository, revision or file.
    Unreachable
        If it refuses, or fails at every attempt.
    """
    for number in range(ATTEMPTS):
        wait, asked = FIRST_WAIT * 2**number, 0.0
        try:
            return attempt()
        except HfHubHTTPError as error:
            failure: HTTPError = error
            status, headers = error.response.status_code, error.response.headers
            if status not in (408, 429) and status < 500:
                raise _refusal(status, headers, where) from error
            asked = _requested_wait(headers)
        except HTTPError as error:
            failure = error
        if asked > LONGEST_WAIT:
            raise Unreachable(
                f"{where}: {_reason(failure)}, and the Hub asks to wait {asked:.0f} seconds. "
                "Run it again after that; requests with a token (HF_TOKEN) have higher limits."
            ) from failure
        if number + 1 < ATTEMPTS:
            _log.info("%s: %s, trying again", where, _reason(failure))
            pause(max(wait, asked))
    raise Unreachable(
        f"{where}: {_reason(failure)}, {ATTEMPTS} times in a row. Check the network, the proxy and "
        "HF_ENDPOINT, or try later; --offline uses what was read before."
    ) from failure


def model_info(repo_id: str, revision: str | None) -> ModelInfo:
    """Ask which commit a revision is (``sha``) and which files it has (``siblings``).

    Raises
    ------
    UnknownReference, Unreachable
        As `patiently`; also if the id is impossible or the answer is no model's page.
    """
    where = f"{repo_id}@{revision}" if revision else repo_id
    api, timeout = HfApi(library_name="posprobe"), constants.HF_HUB_DOWNLOAD_TIMEOUT
    try:
        info = patiently(
            where,
            lambda: api.model_info(
                repo_id, revision=revision, timeout=timeout, expand=["sha", "siblings"]
            ),
        )
        if COMMIT.fullmatch(str(info.sha)):
            return info
        reason: object = f"its commit is {info.sha!r}"
    except HFValidationError as error:
        raise UnknownReference(
            f"{repo_id}: no Hub id can look like this. Write NAME or OWNER/NAME as on the model's "
            "page, or check the path if a file was meant."
        ) from error
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        reason = error
    raise Unreachable(
        f"{where}: the answer is not a model's page ({str(reason)[:80]}). Something else than the "
        "Hub may have answered: check the proxy, the network's sign-in page and HF_ENDPOINT."
    )


def read_range(
    repo_id: str, commit: str, file: str, start: int, stop: int
) -> tuple[bytes, int | None]:
    """Read the bytes ``start`` to ``stop`` of a file on the Hub, fewer where the file ends before.

    Returns
    -------
    tuple
        The bytes and the length of the whole file, None where the server does not tell.

    Raises
    ------
    UnknownReference, Unreachable
        As `patiently`; also if the answer is not the range that was asked for.
    """
    got = bytearray()
    size = patiently(f"{repo_id}/{file}", lambda: _receive(got, repo_id, commit, file, start, stop))
    return bytes(got[: stop - start]), size


def _receive(
    got: bytearray, repo_id: str, commit: str, file: str, start: int, stop: int
) -> int | None:
    """Extend ``got`` to the bytes ``start`` to ``stop``; what arrived before is not asked again."""
    headers = build_hf_headers(library_name="posprobe", library_version=version("posprobe")) | {
        "Accept-Encoding": "identity",  # a range counts bytes as they are sent
        "Range": f"bytes={start + len(got)}-{stop - 1}",
    }
    with get_session().stream(
        "GET",
        hf_hub_url(repo_id, file, revision=commit),
        headers=headers,
        timeout=constants.HF_HUB_DOWNLOAD_TIMEOUT,
        follow_redirects=True,
    ) as response:
        status, told = response.status_code, response.headers
        if status == 416 and start == 0 and told.get("Content-Range") == "bytes */0":
            return 0
        if status >= 300:
            raise HfHubHTTPError(f"status {status}", response=response)
        if status == 200 and start == 0:
            got.clear()  # the whole file comes, from its beginning
        end, size = _announced(status, told, start + len(got), stop, repo_id, file)
        for chunk in response.iter_raw():
            got.extend(chunk)
            if start + len(got) >= (stop if end is None else end):
                break  # leaving the block closes the connection, with the rest unread
    have = start + len(got)
    if end is None:
        return have if have < stop else None
    if have < end:
        raise HTTPError(f"the answer broke off {end - have} bytes before its end")
    return size


def _announced(
    status: int, headers: Mapping[str, str], begin: int, stop: int, repo_id: str, file: str
) -> tuple[int | None, int | None]:
    """Check that an answer begins at ``begin``; return where to stop and the file's length."""
    fetch = f"Fetch the file with `hf download {repo_id} {file}`; it is then read from there."
    where = f"{repo_id}/{file}"
    if headers.get("Content-Encoding", "identity") != "identity":
        raise Unreachable(
            f"{where}: the server compresses what it was asked to send as it is. {fetch}"
        )
    if status == 206:
        told = headers.get("Content-Range", "")
        match = re.fullmatch(r"bytes ([0-9]{1,18})-([0-9]{1,18})/([0-9]{1,18})", told)
        first, last, size = map(int, match.groups()) if match else (0, -1, 0)
        # Bytes from any other place would be wrong numbers in a table, without a sign of it.
        if first != begin or not begin <= last < min(size, stop):
            raise Unreachable(
                f"{where}: bytes {begin}-{stop - 1} were asked for and the server says that it "
                f"sends {told[:80]!r}. {fetch}"
            )
        return min(stop, size), size
    if status != 200 or begin:
        raise Unreachable(
            f"{where}: the server sends only whole files, not the byte range that was asked for. "
            f"{fetch}"
        )
    length = headers.get("Content-Length", "")
    if not re.fullmatch(r"[0-9]{1,18}", length):
        return None, None
    return min(stop, int(length)), int(length)


def _refusal(status: int, headers: Mapping[str, str], where: str) -> PosprobeError:
    """Say what a status means that no further attempt will change."""
    code, said = headers.get("X-Error-Code"), headers.get("X-Error-Message", "")[:200]
    sign_in = "set HF_TOKEN or run `hf auth login`"
    if code == "GatedRepo":
        return Unreachable(
            f"{where}: its authors share it only with those who accept their conditions. Accept "
            f"them on the model's page, then {sign_in}."
        )
    if code == "RevisionNotFound":
        return UnknownReference(
            f"{where}: the repository has no such revision. Check the branch, tag or commit after "
            "@ or --revision; without one the main branch is read."
        )
    if code == "EntryNotFound":
        return UnknownReference(
            f"{where}: the repository has no such file. Its shard index may name files that were "
            "never uploaded: choose another revision or tell its authors."
        )
    if status == 401 and said.startswith("Invalid credentials"):
        return Unreachable(
            f"{where}: the Hub does not accept your token. Renew it with `hf auth login`, or unset "
            "HF_TOKEN for a public model."
        )
    if code == "RepoNotFound" or status in (401, 404):
        return UnknownReference(
            f"{where}: the Hub knows no such model, or it is private (status {status}). Check the "
            f"spelling of OWNER/NAME; for a private model {sign_in}."
        )
    if status == 403:
        return Unreachable(
            f"{where}: access is forbidden ({said or 'no reason given'}). Check that your token "
            f"may read this repository, then {sign_in}."
        )
    if status == 416:
        return Unreachable(
            f"{where}: the server has no such range of bytes ({headers.get('Content-Range')}), so "
            "its copy differs from the file's header. Run it again, or use `hf download`."
        )
    return Unreachable(f"{where}: the Hub answers with status {status} ({said}). Try again later.")


def _requested_wait(headers: Mapping[str, str]) -> float:
    """Seconds that a server asks to wait, 0 where it asks for none."""
    told = headers.get("Retry-After", "").strip()
    if told.isascii() and told.isdigit():
        return float(told)
    # The Hub's own limits come as: RateLimit: "api";r=0;t=55
    if limit := re.search(r";\s*r\s*=\s*0\s*;\s*t\s*=\s*(\d+)", headers.get("RateLimit", "")):
        return float(limit[1])
    try:
        return max(0.0, (parsedate_to_datetime(told) - datetime.now(UTC)).total_seconds())
    except (TypeError, ValueError):  # no date, or one without its time zone
        return 0.0


def _reason(error: HTTPError) -> str:
    if isinstance(error, HfHubHTTPError):
        return f"the Hub answers with status {error.response.status_code}"
    return f"the connection failed ({str(error).strip() or type(error).__name__})"
