"""Text from elsewhere, shown so that it can do nothing and hide nothing.

Names of tensors, values of configurations, file names, options and messages of a server are written
by others. In a terminal a control character clears the screen or types a command, and a mark of
direction makes a name read as another.
"""

from __future__ import annotations

import re


def plain(text: str) -> str:
    r"""Return a text with every character that is not seen as itself written as an escape.

    Control characters, line breaks, marks of direction and other invisible ones become ``\x1b``,
    ``\n``, ``\u202e``; letters, signs and spaces of any script stay. So do the stand-ins of bytes
    that are not text (lone surrogates), which a stream writes as it can.
    """
    if text.isprintable():
        return text
    return "".join(
        letter if _seen(letter) else letter.encode("unicode_escape").decode() for letter in text
    )


def brief(text: str) -> str:
    """Return a message with the middle of endless words left out; few paths are so long."""
    return re.sub(r"\S{1000,}", lambda word: f"{word[0][:100]}...{word[0][-100:]}", plain(text))


def plain_json(text: str) -> str:
    r"""Do the same to indented JSON, in its own escapes: the document stays what it was."""
    if text.replace("\n", "").isprintable():
        return text
    return "".join(
        letter if letter == "\n" or _seen(letter) else escaped(letter) for letter in text
    )


def escaped(letter: str) -> str:
    """Return a character as JSON escapes it: one or two units of UTF-16."""
    units = letter.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at : at + 2].hex()}" for at in range(0, len(units), 2))


def _seen(letter: str) -> bool:
    import unicodedata  # few names need its megabyte

    return letter.isprintable() or unicodedata.category(letter) in ("Zs", "Cs")
