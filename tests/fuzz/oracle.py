"""What should come of a case, told by those who know: the formats' own packages, and the promises.

Promises: an exit code of the list; one clear message; files of the user unchanged; nothing of a
checkpoint run; time, memory and output bounded; no control character on a terminal or page.
"""

from __future__ import annotations

import html
import io
import json
import re
import unicodedata
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from html.parser import HTMLParser
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from fuzz.case import Case
from fuzz.runner import CANARY, Seen, in_child

#: How a case ended.
Verdict: TypeAlias = Literal["clear error", "accepted", "wrong"]

CODES = (0, 2, 3, 4, 5)
#: What `check` says of two copies: different, cannot tell.
ANSWERS = (6, 7)
#: Characters of an error message, and bytes of all that a case may print.
MESSAGE = 3_000
PRINTED = 400_000
#: Seconds of processor that a case may take; the runner ends it later.
SECONDS = 15.0


@dataclass(frozen=True)
class Outcome:
    """How a case ended, and why that is wrong where it is."""

    verdict: Verdict
    reason: str = ""


def judge(case: Case, observation: Seen) -> Outcome:
    """Say how a case ended; the first broken promise is the reason."""
    broken = next(_broken(case, observation), None)
    if broken is not None:
        return Outcome("wrong", broken)
    return Outcome("accepted" if observation.code == 0 else "clear error")


def _broken(case: Case, observation: Seen) -> Iterator[str]:
    stdout, err = (
        observation.out.decode("utf-8", "replace"),
        observation.err.decode("utf-8", "replace"),
    )
    if (
        f"work/{CANARY}" in observation.after
        and f"work/{CANARY}" not in observation.before
    ):
        yield "code of the checkpoint ran"
    if re.search(r"\[y/N\]", stdout + err):
        yield "it asks whether to run code"
    if observation.code < 0:
        yield f"ended by signal {-observation.code} after {observation.seconds:.1f} s"
    if "Traceback (most recent call last)" in err:
        yield f"a traceback: {_last(err)}"
    answers = ANSWERS if case.argv[0] == "check" else ()
    if "a bug:" in err or observation.code not in (*CODES, *answers):
        yield f"exit code {observation.code}: {_last(err) or _last(stdout)}"
    if observation.seconds > SECONDS:
        yield f"it takes {observation.seconds:.0f} s of processor"
    if len(observation.out) + len(observation.err) > PRINTED:
        yield f"{len(observation.out) + len(observation.err)} bytes are printed"
    for name, raw, text in (
        ("stdout", observation.out, stdout),
        ("stderr", observation.err, err),
    ):
        if (bad := foreign_characters(text, raw)) is not None:
            yield f"{name} holds {bad}"
    if observation.code not in answers:
        yield from _message(observation, err)
    if case.expected == "accepted" and observation.code != 0:
        yield f"sound input is refused: {_last(err)}"
    if case.expected == "error" and observation.code == 0:
        yield "what cannot mean anything is accepted"
    yield from _changed(case, observation)
    if observation.code == 0:
        yield from _written(observation)
    if case.read is not None:
        yield from _compared(case, observation)


def _last(text: str) -> str:
    lines = [line for line in text.splitlines() if line.strip()]
    return lines[-1][:300] if lines else ""


def foreign_characters(text: str, raw: bytes = b"") -> str | None:
    """Name the first character that no terminal or page should be sent."""
    for character in set(text):
        if character in "\n\t":
            continue
        if unicodedata.category(character) in ("Cc", "Cf", "Cs", "Zl", "Zp"):
            place = text.index(character)
            return f"{character!r} in {text[max(0, place - 30) : place + 30]!r}"
    if raw and "\ufffd" in text:
        try:
            raw.decode("utf-8")
        except ValueError as error:
            return f"bytes that are no UTF-8 ({str(error)[:60]})"
    return None


def _message(observation: Seen, err: str) -> Iterator[str]:
    """Of a failure there is one message, in the house's form or the option parser's."""
    house = re.findall(r"^posprobe: .*", err, re.MULTILINE)
    parser = re.findall(r"^Error: .*|^╭─ Error", err, re.MULTILINE)
    if observation.code == 0:
        if house:
            yield f"exit code 0 beside an error: {house[0][:200]}"
    elif len(house) + len(parser) != 1:
        count = len(house) + len(parser)
        yield f"{count} error messages with exit code {observation.code}: {_last(err)}"
    elif house and any(
        not line.startswith("  ") for line in err.partition(house[0])[2].splitlines()[1:]
    ):
        yield f"something follows the error message: {_last(err)}"
    elif len((house + parser)[0]) > MESSAGE:
        yield f"a message of {len((house + parser)[0])} characters"


def _changed(case: Case, observation: Seen) -> Iterator[str]:
    """Nothing but the outputs changes, and after a failure nothing at all."""
    allowed = tuple(
        f"work/{name}" for name in case.outputs if observation.code in (0, *ANSWERS)
    )
    for path in sorted({*observation.before, *observation.after}):
        if observation.before.get(path) == observation.after.get(path):
            continue
        if any(path == name or path.startswith(f"{name}/") for name in allowed):
            continue
        # Folders on the way to an output are made.
        if (
            any(name.startswith(f"{path}/") for name in allowed)
            and path not in observation.before
        ):
            continue
        if path == "home/.config" or path.startswith(("home/.config/", "home/.cache")):
            continue  # matplotlib's own list of fonts
        change = (
            "is new"
            if path not in observation.before
            else "changed"
            if path in observation.after
            else "is gone"
        )
        yield f"{path} {change} (exit code {observation.code})"


def _written(observation: Seen) -> Iterator[str]:
    for path in sorted(observation.after):
        if observation.before.get(path) == observation.after[path] or not path.startswith(
            "work/"
        ):
            continue
        place = observation.folder.parent / path
        if path.endswith(".html"):
            yield from _page(place)
        elif path.endswith(".json"):
            try:
                json.loads(place.read_bytes(), parse_constant=_no_constant)
            except ValueError as error:
                yield f"{path} is no valid JSON ({error})"
        elif path.endswith(".caption.txt"):
            bad = foreign_characters(place.read_text("utf-8"))
            yield from [f"{path} holds {bad}"] if bad is not None else []


def _no_constant(name: str) -> float:
    raise ValueError(f"{name} is no JSON")


# --- numbers -----------------------------------------------------------------------------------


def _compared(case: Case, observation: Seen) -> Iterator[str]:
    assert case.read is not None
    if observation.code != 0:
        return
    files, tensor = case.read
    problems = [
        list(_differs(case, observation, file, tensor)) for file in files.split("|")
    ]
    if all(problems):
        yield problems[0][0]


def _differs(case: Case, observation: Seen, file: str, tensor: str) -> Iterator[str]:
    expected = read_by_package(observation, file, tensor)
    if isinstance(expected, str):
        yield f"accepted, and the format's own package refuses it ({expected})"
        return
    place = observation.folder / "out.npy"
    if not place.is_file():
        return
    got = np.load(place, allow_pickle=False).astype(np.float64)
    with np.errstate(all="ignore"):
        expected_values = expected.astype(np.float64)
    if case.block:
        flat = (
            expected_values.reshape(-1, expected_values.shape[-1])
            if expected_values.ndim
            else expected_values
        )
        starts = range(len(flat) - len(got) + 1)
        if not any(
            np.array_equal(flat[s : s + len(got)], got, equal_nan=True) for s in starts
        ):
            shape = list(expected_values.shape)
            yield f"no block of the stored rows {shape}: {list(got.shape)} was read"
    elif not np.array_equal(expected_values.reshape(-1), got.reshape(-1), equal_nan=True):
        yield (
            f"other numbers than the package reads: {got.reshape(-1)[:3].tolist()}, shape "
            f"{list(got.shape)}, for {expected_values.reshape(-1)[:3].tolist()}, shape "
            f"{list(expected_values.shape)}"
        )


def read_by_package(observation: Seen, file: str, tensor: str) -> NDArray[Any] | str:
    """Read a tensor with the package of its format, in a child; a text says why it refuses."""
    place, scratch = observation.folder / file, observation.folder.parent
    answer = scratch.parent / f"{scratch.name}.npy"
    refusal = scratch.parent / f"{scratch.name}.txt"

    def act() -> int:
        try:
            read = _package(place, tensor)
            # A bfloat16 is none of NumPy's own numbers.
            plain = read.astype(np.float64) if read.dtype.kind == "V" else read
            np.save(answer, plain, allow_pickle=False)
        except Exception as error:  # noqa: BLE001 - each package has errors of its own
            refusal.write_text(
                f"{type(error).__name__}: {str(error)[:200]}", errors="replace"
            )
        return 0

    try:
        in_child(act, scratch)
        if answer.is_file():
            return np.asarray(np.load(answer, allow_pickle=False))
        return refusal.read_text() if refusal.is_file() else "it does not come back"
    finally:
        answer.unlink(missing_ok=True)
        refusal.unlink(missing_ok=True)


def _package(place: Path, tensor: str) -> NDArray[Any]:
    if place.suffix == ".safetensors":
        import safetensors

        read: Any = safetensors.deserialize

        stored = _named(dict(read(place.read_bytes())), tensor)
        return _numbers(stored["dtype"], stored["data"]).reshape(stored["shape"])
    if place.suffix == ".npy":
        return _sound(np.load(place, allow_pickle=False))
    if place.suffix == ".npz":
        with zipfile.ZipFile(place) as archive:
            content = archive.read(f"{tensor}.npy")
        return _sound(np.load(io.BytesIO(content), allow_pickle=False))
    if place.suffix in (".h5", ".keras"):
        import h5py

        content = place.read_bytes()
        if place.suffix == ".keras":
            with zipfile.ZipFile(place) as archive:
                content = archive.read("model.weights.h5")
        with h5py.File(io.BytesIO(content)) as file:
            return np.asarray(file[tensor][()])
    if place.suffix == ".msgpack":
        import msgpack

        tree = msgpack.unpackb(place.read_bytes())
        for part in tensor.split("/"):
            tree = tree[part]
        shape, dtype, data = msgpack.unpackb(tree.data)
        return np.frombuffer(data, dtype).reshape(shape)
    if place.suffix == ".onnx":
        return _onnx(place, tensor)
    if place.suffix == ".gguf":
        import gguf

        stored = _named(
            {entry.name: entry for entry in gguf.GGUFReader(place).tensors}, tensor
        )
        values = stored.data
        if values.dtype.kind != "f":
            values = gguf.quants.dequantize(values, stored.tensor_type)
        return np.asarray(values).reshape([int(size) for size in stored.shape[::-1]])
    import argparse

    import torch

    with torch.serialization.safe_globals([argparse.Namespace]):
        content = torch.load(place, map_location="cpu", weights_only=True, mmap=False)
    return np.asarray(content[tensor].detach().to_dense().to(torch.float64).numpy())


def _named(stored: dict[str, Any], tensor: str) -> Any:
    """Return the tensor; of a file with one alone that one, since a byte of its name may change."""
    return next(iter(stored.values())) if len(stored) == 1 else stored[tensor]


def _onnx(place: Path, tensor: str) -> NDArray[Any]:
    """Read a table, and dequantise it where the first node that takes it does."""
    import onnx
    from onnx.reference import ReferenceEvaluator

    model = onnx.load(place)
    nodes = list(model.graph.node)
    stored = {
        node.output[0]: node.attribute[0].t
        for node in nodes
        if node.op_type == "Constant"
    }
    stored |= {
        initializer.name: initializer for initializer in reversed(model.graph.initializer)
    }
    for node in nodes:
        if node.op_type == "DequantizeLinear" and node.input[0] == f"{tensor}_quantized":
            inputs = [stored[name] for name in node.input]
            graph = onnx.helper.make_graph(
                [node],
                "one",
                [],
                [onnx.helper.make_empty_tensor_value_info(node.output[0])],
                inputs,
            )
            opset = onnx.helper.make_opsetid("", 21)
            single_model = onnx.helper.make_model(graph, opset_imports=[opset])
            (values,) = ReferenceEvaluator(single_model).run(None, {})
            return np.asarray(values)
    return np.asarray(onnx.numpy_helper.to_array(stored[tensor]))


def _sound(array: Any) -> NDArray[Any]:
    if not isinstance(array, np.ndarray) or array.dtype.kind not in "fiub":
        raise TypeError("no numbers")
    return array


def _numbers(dtype: str, data: bytes) -> NDArray[Any]:
    if dtype == "BF16":
        return (np.frombuffer(data, "<u2").astype(np.uint32) << 16).view(np.float32)
    return np.frombuffer(data, {"F64": "<f8", "F32": "<f4", "F16": "<f2"}[dtype])


# --- pages -------------------------------------------------------------------------------------

#: Elements that run, load, send or steer, wherever they stand.
_ACTIVE = {
    "base", "form", "iframe", "object", "embed", "link", "foreignobject", "frame", "frameset",
    "applet", "animate", "set", "animatetransform", "animatemotion", "portal", "input", "button",
    "textarea", "audio", "video", "source", "track",
}  # fmt: skip
#: Attributes whose value is loaded or followed.
_ADDRESSES = {
    "href", "xlink:href", "src", "srcset", "action", "formaction", "data", "poster", "background",
    "ping", "manifest",
}  # fmt: skip


class _Look(HTMLParser):
    """Lists what a page holds that a foreign drawing or text must not bring."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.found: list[str] = []
        self.inside = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        # Data is no script: it is not run.
        self.inside = "" if values.get("type") == "application/json" else tag
        if tag in _ACTIVE:
            self.found.append(f"<{tag}>")
        steers = values.get("http-equiv", "content-security-policy").lower()
        if steers != "content-security-policy":
            self.found.append(f"<meta http-equiv={steers}>")
        for name, value in values.items():
            if name.startswith("on"):
                self.found.append(f"{name} of <{tag}>")
            address = re.sub(r"[\s\x00-\x20]+", "", value).lower()
            if name in _ADDRESSES and not _harmless(tag, address):
                self.found.append(f"{name}={value[:60]!r} of <{tag}>")
            if name == "style" and re.search(
                r"url\((?!['\"]?(#|data:image/))|@import", address
            ):
                self.found.append(f"style={value[:60]!r} of <{tag}>")

    def handle_data(self, data: str) -> None:
        if self.inside in ("script", "style") and "FOREIGN" in data:
            self.found.append(f"foreign text in <{self.inside}>")

    def handle_endtag(self, tag: str) -> None:
        self.inside = "" if tag else self.inside


def _harmless(tag: str, address: str) -> bool:
    if address.startswith("#") or address == "":
        return True
    if tag in ("img", "image"):
        return address.startswith("data:image/")
    return tag == "a" and not re.match(r"[a-z0-9+.-]*:|//", address)


#: What the fuzzed drawings and names want to show as a heading, a script or a style of the page.
_MARKS = re.compile(r"<(?:script|style|h1|h2|iframe)[^>]*>\s*FOREIGN", re.IGNORECASE)


def _page(place: Path) -> Iterator[str]:
    text = place.read_text("utf-8")
    look = _Look()
    look.feed(text)
    look.close()
    if look.found:
        yield f"the page {place.name} holds {look.found[0]}"
    if mark := _MARKS.search(text):
        yield f"the page {place.name} holds {mark[0][:80]!r}"
    visible = html.unescape(re.sub(r"data:[^\"')]*", "", text))
    if (bad := foreign_characters(visible)) is not None:
        yield f"the page {place.name} holds {bad}"
