"""Byte ranges of a file on the Hub, all of them of one version of it.

A commit never changes; a mirror, a proxy or a branch that is read by name can. Every answer says of
which content it is (the Hub's ETag, the commit, the length of the whole file), and all of them must
say the same.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.metadata import version as version_of
from typing import Any

from huggingface_hub import constants, get_session, hf_hub_url
from huggingface_hub.errors import HfHubHTTPError, HTTPError  # type: ignore[attr-defined]
from huggingface_hub.utils import build_hf_headers  # type: ignore[attr-defined]

from posprobe.checkpoints.transfer import patiently, too_late
from posprobe.errors import Unreachable

#: Bytes per second that a body must come with in the mean, once `GRACE` seconds are over.
LEAST_RATE, GRACE = 1024.0, 15.0


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

    def joined(self, other: Version) -> Version | None:
        """Put together what both tell; None where they contradict each other."""
        sizes = {self.size, other.size} - {None}
        if len(sizes) > 1 or (self.etag and other.etag and self.etag != other.etag):
            return None
        return Version(self.etag or other.etag, next(iter(sizes), None))


def read_range(
    repo_id: str, commit: str, file: str, start: int, stop: int, version: Version | None = None
) -> tuple[bytes, Version]:
    """Read the bytes ``start`` to ``stop`` of a file on the Hub, fewer where the file ends before.

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
    part = _Part(repo_id, commit, file, start, stop, version or Version())
    patiently(part.where, part.receive, part.given_up)
    return bytes(part.got[: stop - start]), part.version


@dataclass
class _Part:
    """A range of bytes as it arrives, maybe in several attempts."""

    repo_id: str
    commit: str
    file: str
    start: int
    stop: int
    version: Version
    got: bytearray = field(default_factory=bytearray)
    #: When the body of this attempt began, and how much there was then.
    began: tuple[float, int] | None = None

    @property
    def where(self) -> str:
        return f"{self.repo_id}/{self.file}"

    def given_up(self, seconds: float) -> bool:
        """Tell whether this attempt is too slow to go on."""
        if self.began is None:
            return too_late(seconds)
        since, had = self.began
        passed = time.monotonic() - since
        return passed > GRACE and len(self.got) - had < LEAST_RATE * passed

    def receive(self) -> None:
        """Extend ``got`` to the whole range; what arrived before is not asked for again."""
        self.began = None
        command = f"hf download {self.repo_id} {self.file}"
        fetch = f"Fetch the file with `{command}`; it is then read from there."
        headers = build_hf_headers(
            library_name="posprobe", library_version=version_of("posprobe")
        ) | {
            "Accept-Encoding": "identity",  # a range counts bytes as they are sent
            "Range": f"bytes={self.start + len(self.got)}-{self.stop - 1}",
        }
        with get_session().stream(
            "GET",
            hf_hub_url(self.repo_id, self.file, revision=self.commit),
            headers=headers,
            timeout=constants.HF_HUB_DOWNLOAD_TIMEOUT,
            follow_redirects=True,
        ) as response:
            status, told = response.status_code, response.headers
            if status == 416 and self.start == 0 and told.get("Content-Range") == "bytes */0":
                self.version = Version(self.version.etag, 0)
                return
            if status >= 300:
                raise HfHubHTTPError(f"status {status}", response=response)
            if status == 200 and self.start == 0:
                self.got.clear()  # the whole file comes, from its beginning
            have = self.start + len(self.got)
            end, size = _announced(status, told, have, self.stop, self.where, fetch)
            self._check([*response.history, response], size)
            self.began = time.monotonic(), len(self.got)
            for chunk in response.iter_raw():
                self.got.extend(chunk)
                if self.start + len(self.got) >= (self.stop if end is None else end):
                    break  # leaving the block closes the connection, with the rest unread
        have = self.start + len(self.got)
        if end is None and have < self.stop:
            self.version = Version(self.version.etag, have)
        elif end is not None and have < end:
            raise HTTPError(f"the answer broke off {end - have} bytes before its end")

    def _check(self, answers: list[Any], size: int | None) -> None:
        """Hold what an answer says of its content against what was read before."""
        found: Version | None = Version(size=size)
        for answer in answers:
            commit = answer.headers.get("X-Repo-Commit", self.commit)
            if commit != self.commit:
                raise Replaced(
                    f"{self.where}: commit {self.commit[:12]} was asked for and {commit[:12]!r} "
                    "came. Something other than the Hub may have answered: check HF_ENDPOINT."
                )
            linked = answer.headers.get("X-Linked-Size", "")
            if found and size is not None and re.fullmatch(r"[0-9]{1,18}", linked):
                found = found.joined(Version(size=int(linked)))
        found = found and found.joined(Version(_etag(answers)))
        joined = found and self.version.joined(found)
        if joined is None:
            raise Replaced(
                f"{self.where}: the file was replaced since its beginning was read: its ETag or "
                "length is another one. Nothing of it was used; run the same again."
            )
        self.version = joined


def _etag(answers: list[Any]) -> str:
    """Return the Hub's name of a content; that of the server it redirects to is its own."""
    linked = [answer.headers.get("X-Linked-Etag", "") for answer in answers]
    found = next(filter(None, linked), answers[-1].headers.get("ETag", ""))
    return str(found).removeprefix("W/").strip('"')[:200]


def _announced(
    status: int, headers: Mapping[str, str], begin: int, stop: int, where: str, fetch: str
) -> tuple[int | None, int | None]:
    """Check that an answer begins at ``begin``; return where to stop and the file's length."""
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
