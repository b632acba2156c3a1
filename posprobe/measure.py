"""Every measurement of one model: from its weights, from running it, from experiments on it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import NDArray

from posprobe import families, forward
from posprobe.analyses.effective import EffectiveTable
from posprobe.analyses.headline import headline, ruler, sinusoid_headline
from posprobe.analyses.mean_decomposition import MeanDecomposition
from posprobe.analyses.result import Result
from posprobe.analyses.subspaces import subspace_overlap
from posprobe.arrays import Array, Device, device_name
from posprobe.errors import PosprobeError, UsageError
from posprobe.forward.models import first_device
from posprobe.forward.states import image_shape, is_timm
from posprobe.forward.streaming import INTERRUPTED, context_length
from posprobe.nulls import band, surrogate
from posprobe.report.analysis import DRAWS, environment
from posprobe.report.forward import NAMES, ForwardAnalysis
from posprobe.table import Layout, PositionTable

logger = logging.getLogger("posprobe")

if TYPE_CHECKING:
    from posprobe.forward.models import Precision

#: Tokens of a context unless stated; Song & Zhong take 512.
LENGTH = 128
#: Contexts that the experiments take at most, which run each several times.
FEW = 16
#: Token embeddings that are read of a local file, where there are as many.
TOKENS = 2**15
#: What only models for text, and only models for images, can show.
_TEXT, _IMAGES = ("words", "shift"), ("blank",)


@dataclass(frozen=True)
class Contexts:
    """What a model is run on.

    Parameters
    ----------
    text
        File in UTF-8, cut into windows; None draws random tokens.
    images
        Folder of pictures; None draws random pixels.
    count
        Most contexts that are run.
    length
        Tokens of each; None takes `LENGTH`, or what the model has positions for.
    batch_size
        How many are run at a time.
    seed
        Of random ones.

    Examples
    --------
    >>> import posprobe as pp
    >>> pp.Contexts(count=16, length=64)
    Contexts(text=None, images=None, count=16, length=64, batch_size=8, seed=0)
    """

    text: Path | None = None
    images: Path | None = None
    count: int = 64
    length: int | None = None
    batch_size: int = 8
    seed: int = 0


def analyze_model(
    reference: str,
    contexts: Contexts | None = None,
    *,
    only: Iterable[str] | None = None,
    positions: slice | None = None,
    layers: Sequence[int] | None = None,
    nulls: int = DRAWS,
    device: Device = "auto",
    device_map: str | None = None,
    dtype: Precision = "float32",
    trust_remote_code: bool = False,
    revision: str | None = None,
    offline: bool = False,
    command: str | None = None,
    progress: bool = False,
) -> ForwardAnalysis:
    """Measure what position does inside a model.

    Interrupted with Ctrl-C, what was measured until then is returned, and the result says so.

    Parameters
    ----------
    reference
        As for `posprobe.load_model`.
    contexts
        What to run it on; None stands for seeded random tokens or pixels. The experiments, which
        run each context several times, take the first `FEW`.
    only
        Names out of `posprobe.report.forward.NAMES`; None stands for all that such a model can
        have. Of what cannot be measured the result says why.
    positions, layers
        Which positions and hidden states to look at, as for `posprobe.decompose`.
    nulls
        Random walks that the numbers of a layer stand beside.
    device, device_map, dtype, trust_remote_code, revision, offline
        As for `posprobe.load_model`.
    command
        The command line, for the record.
    progress
        Whether to show on stderr how far the runs are.

    Raises
    ------
    PosprobeError
        As `posprobe.load_model` and `posprobe.decompose`, and where the only thing that was asked
        for cannot be measured.

    Examples
    --------
    This needs the extra `models`:

    >>> import posprobe as pp
    >>> contexts = pp.Contexts(count=4)
    >>> analysis = pp.analyze_model("sample:digits-vit", contexts, only=("states",), nulls=0)
    >>> sorted(analysis.results)
    ['states']
    """
    given = contexts or Contexts()
    wanted = _chosen(only)
    if nulls < 0:
        raise UsageError(f"--nulls {nulls}: the number of random walks to draw is 0 or more.")
    least = {"count": 1, "batch_size": 1, "length": 1, "seed": 0}
    for name, number in least.items():
        value = getattr(given, name)
        if value is not None and (not isinstance(value, int) or value < number):
            raise UsageError(
                f"Contexts({name}={value!r}): it is a whole number of {number} or more."
            )
    load = partial(
        forward.load_model, reference, device=device, device_map=device_map, dtype=dtype,
        trust_remote_code=trust_remote_code, revision=revision, offline=offline,
    )  # fmt: skip
    # A loss of random tokens says nothing; without a head a model is smaller.
    model = load(head=given.text is not None)
    source = _Source(
        reference, model, given, trust_remote_code=trust_remote_code, revision=revision,
        offline=offline,
    )  # fmt: skip
    described = source.describe()
    stored = partial(families.load, reference, rows=positions, revision=revision, offline=offline)
    run = partial(source.batches, progress=progress)
    few = min(given.count, FEW)
    read: dict[str, Any] = {"revision": revision, "offline": offline}
    steps: dict[str, Callable[[], Result]] = {
        "heads": lambda: forward.measure_heads(reference, rows=positions, **read),
        "effective": lambda: _effective(
            stored(), families.effective_table(reference, rows=positions, **read)
        ),
        "subspaces": lambda: _subspaces(stored(), seed=given.seed, offline=offline),
        "states": lambda: forward.decompose(
            model, run("hidden states", given.count), positions=positions, layers=layers,
            name=reference,
        ),
        "attention": lambda: forward.attend(model, run("attention", given.count), name=reference),
        "words": lambda: forward.attend(
            model, run("one word repeated", given.count, repeated=True), layers=[0],
            name=reference,
        ),
        "permutation": lambda: forward.permutation_effect(
            model, run("permutations", few), seed=given.seed, name=reference
        ),
        "shift": lambda: forward.phase_shift(
            model, run("shifted positions", few, room=True), mask_token=source.mask_token,
            seed=given.seed, name=reference,
        ),
        "blank": lambda: forward.blank_images(model, seed=given.seed, name=reference),
    }  # fmt: skip
    if only is None:
        other = _TEXT if source.takes_images else _IMAGES
        steps = {name: step for name, step in steps.items() if name not in other}
    results, missing = _measured({n: step for n, step in steps.items() if n in wanted})
    notes = tuple(
        dict.fromkeys(note for result in results.values() for note in getattr(result, "notes", ()))
    )
    states = results.get("states")
    tables = (
        {number: states.table(number) for number in states.layers}
        if isinstance(states, MeanDecomposition)
        else {}
    )
    beside, by_layer = _headlines(tables, nulls, given.seed)
    place = first_device(model)
    return ForwardAnalysis(
        name=reference,
        model={
            "class": type(model).__name__,
            "parameters": sum(parameter.numel() for parameter in model.parameters()),
            "dtype": str(next(model.parameters()).dtype).removeprefix("torch."),
            "device": place.type,
        },
        contexts=described,
        results={name: results[name] for name in NAMES if name in results},
        missing=missing,
        layers=by_layer,
        beside=beside,
        environment=environment(device_name(place), given.seed, command),
        notes=notes,
    )


def _chosen(only: Iterable[str] | None) -> tuple[str, ...]:
    if only is None:
        return NAMES
    names = (only,) if isinstance(only, str) else tuple(only)
    for name in names:
        if name not in NAMES:
            raise UsageError(f"nothing is called {name!r}. There are {', '.join(NAMES)}.")
    if not names:
        raise UsageError(f"nothing is chosen. There are {', '.join(NAMES)}.")
    return names


def _measured(
    steps: Mapping[str, Callable[[], Result]],
) -> tuple[dict[str, Result], dict[str, str]]:
    """Take the steps one after the other; what is interrupted is the last."""
    results: dict[str, Result] = {}
    missing: dict[str, str] = {}
    stopped = False
    for name, step in steps.items():
        if stopped:
            missing[name] = INTERRUPTED
            continue
        try:
            results[name] = step()
            stopped = any(INTERRUPTED in note for note in getattr(results[name], "notes", ()))
        except Exception as error:
            # Hidden states are what the run is for, unless it is for this alone.
            if name == "states" or len(steps) == 1:
                raise
            missing[name] = str(error)
            if not isinstance(error, PosprobeError):
                missing[name] = f"a bug: {type(error).__name__}: {error}"
                logger.warning("%s: %s. Please report it.", name, missing[name])
        except KeyboardInterrupt:
            if not results:
                raise
            missing[name] = INTERRUPTED
            stopped = True
    return results, missing


@dataclass(frozen=True, eq=False)
class _Source:
    """Where contexts come from."""

    reference: str
    model: Any
    contexts: Contexts
    trust_remote_code: bool
    revision: str | None
    offline: bool

    @cached_property
    def tokenizer(self) -> Any:
        """Of the text that it is run on, read once."""
        return forward.load_tokenizer(
            self.reference, trust_remote_code=self.trust_remote_code, revision=self.revision,
            offline=self.offline,
        )  # fmt: skip

    @cached_property
    def windows(self) -> NDArray[np.int64]:
        """``[count, length]``: of the text, cut once."""
        text = cast(Path, self.contexts.text)
        cut = forward.text_windows(text, self.tokenizer, self.length, count=self.contexts.count)
        return np.concatenate(list(cut))

    @property
    def mask_token(self) -> int | None:
        """What masks a token, known only with a text's tokenizer."""
        return self.tokenizer.mask_token_id if self.contexts.text else None

    @property
    def takes_images(self) -> bool:
        return image_shape(self.model) is not None

    @property
    def length(self) -> int:
        longest = context_length(self.model)
        return self.contexts.length or min(LENGTH, longest or LENGTH)

    def describe(self) -> dict[str, Any]:
        """Say what the model is run on, and refuse what it does not take."""
        given, shape = self.contexts, image_shape(self.model)
        if not hasattr(self.model, "config") and not is_timm(self.model):
            raise UsageError(
                f"{self.reference}: of timm only transformers that have blocks over patches can be "
                f"looked into, and {type(self.model).__name__} is none."
            )
        if given.length and shape:
            raise UsageError(
                f"{self.reference}: --length is for text, and this model takes images."
            )
        if given.text and given.images:
            raise UsageError("--text and --images: a model takes one of them.")
        if (given.text and shape) or (given.images and not shape):
            takes = "images: use --images DIR" if shape else "text: use --text FILE"
            raise UsageError(f"{self.reference}: this model takes {takes}, or neither.")
        if shape:
            kind = (
                f"the pictures in {given.images}"
                if given.images
                else "random pixels, independent and normal"
            )
            seed = None if given.images else given.seed
            return {"kind": kind, "shape": list(shape), "seed": seed}
        kind = (
            f"windows of {given.text}"
            if given.text
            else "random tokens, independent and equally likely"
        )
        seed = None if given.text else given.seed
        return {"kind": kind, "length": self.length, "seed": seed}

    def batches(
        self,
        label: str,
        count: int,
        *,
        repeated: bool = False,
        room: bool = False,
        progress: bool,
    ) -> Iterator[Array]:
        """Yield contexts, of one token each, or so short that later positions are left."""
        given = self.contexts
        size = given.batch_size
        shape = image_shape(self.model)
        found: Iterator[Array]
        if repeated:
            found = forward.repeated_tokens(
                self.model.config, self.length, count, seed=given.seed, batch_size=size
            )
        elif given.images:
            prepare = forward.load_preparation(
                self.reference, self.model, revision=self.revision, offline=self.offline
            )
            found = forward.image_files(given.images, prepare, count=count, batch_size=size)
        elif shape:
            found = forward.random_images(shape, count, seed=given.seed, batch_size=size)
        elif given.text:
            windows = self.windows[:count]
            found = (windows[begin : begin + size] for begin in range(0, len(windows), size))
        else:
            found = forward.random_tokens(
                self.model.config, self.length, count, seed=given.seed, batch_size=size
            )
        if room and (longest := context_length(self.model)):
            found = (batch[:, : max(1, longest // 2)] for batch in found)
        return _shown(found, label, count) if progress else found


def _shown(batches: Iterable[Array], label: str, count: int) -> Iterator[Array]:
    """Yield batches under a bar with rate and time left; a batch counts when it was run."""
    from tqdm import tqdm

    with tqdm(total=count, desc=f"{label:>18}", unit=" contexts", disable=None) as bar:
        for batch in batches:
            yield batch
            bar.update(len(batch))
        bar.total = bar.n  # there may be fewer than were asked for
        bar.refresh()


def _effective(raw: PositionTable, table: PositionTable) -> EffectiveTable:
    before, after = (
        headline(np.asarray(one.values, dtype=np.float64), ruler(one.layout, one.dim))
        for one in (raw, table)
    )
    return EffectiveTable(before, after, table.notes, table)


def _subspaces(table: PositionTable, *, seed: int, offline: bool) -> Result:
    # What tokens use least is better known the more of them are read, and a disk is near.
    rows = 4 * table.dim if table.source.revision else max(TOKENS, 4 * table.dim)
    tokens = families.load_tokens(table, seed=seed, rows=rows, offline=offline)
    found = subspace_overlap(table, tokens.values)
    if len(found.token_share) < found.rank:
        raise UsageError(
            f"what positions are added to spans {len(found.token_share)} directions alone, fewer "
            f"than the {found.rank} of the positions"
        )
    return found


def _headlines(
    tables: Mapping[int, PositionTable], draws: int, seed: int
) -> tuple[dict[str, Any], dict[int, dict[str, float | None]]]:
    """Return a layer's numbers, and those of the sinusoid and of random walks of its shape."""
    if not tables:
        return {}, {}
    first = next(iter(tables.values()))
    shared = ruler(first.layout, first.dim)
    found = {
        number: headline(np.asarray(table.values, dtype=np.float64), shared)
        for number, table in tables.items()
    }
    drawn = [headline(_walk(first.layout, first.dim, seed, draw), shared) for draw in range(draws)]
    keys = next(iter(found.values()))
    return {
        "sinusoid": sinusoid_headline(shared),
        "walk": {key: band([one.get(key) for one in drawn]) for key in keys},
        "draws": draws,
        "seed": seed,
    }, found


def _walk(layout: Layout, dim: int, seed: int, draw: int) -> Array:
    """Draw a random walk whose steps are equally long, from the origin."""
    even = np.zeros((layout.size, dim))
    even[:, 0] = np.arange(layout.size)
    return surrogate(even, "walk", np.random.default_rng([seed, draw]), layout)
