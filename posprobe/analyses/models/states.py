"""Effect of position on hidden states: means over contexts.

The decomposition ``h = mean + pos_t + ctx_c + rest`` of Song & Zhong 2023 (arXiv 2310.04861).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import ModuleType
from typing import Annotated, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from posprobe.analyses.result import HIDDEN, JsonType, NumberSuffixes, Result, StoredArray
from posprobe.arrays import Array, Sums, map_in_parallel, namespace, to_float64, to_numpy
from posprobe.errors import InvalidTable, UsageError
from posprobe.layouts import Grid, Layout
from posprobe.number_types import Count, Natural, Reasons, Share, limits
from posprobe.sources import Source
from posprobe.tables import PositionTable

#: Products ``[d, d]`` of no more hidden states are added up per layer. These determine the largest
#: variance to a percent or so; in a long run, all products would cost more than all other sums.
MAX_PRODUCT_STATES = 2**15
#: Columns whose products are formed at a time. Blocks save half of a large symmetric matrix.
PRODUCT_BLOCK_COLUMNS = 256
#: Means with flipped signs, which estimate the sampling noise. The signs are Walsh functions: so
#: many are balanced from 8 contexts on, and the largest of four means exceeds the noise in four of
#: five runs.
N_SIGN_FLIPS = 4


@dataclass(frozen=True, eq=False)
class Moments(Sums):
    """Sums over contexts of one layer's hidden states.

    Their size does not depend on the number of contexts. Every state is taken relative to a fixed
    ``origin``, so that a large common mean costs no digits.

    Parameters
    ----------
    contexts
        Number of contexts.
    origin
        ``[d]``.
    deviations, squared_deviations
        ``[t, d]``: of each state less the mean of its context, and of the square of that.
    context_means, squared_context_means
        ``[d]`` and a number: of the means of contexts less the origin, and of their squared norm.
    flipped
        ``[N_SIGN_FLIPS, t, d]``: of each state less the mean of its context, with the signs of
        `context_signs`.
    n_product_contexts
        Number of leading contexts whose products are in ``gram``.
    product_context_means, gram
        Sums over these leading contexts: ``[d]``, as ``context_means``, and ``[d, d]``, the
        products of a state, less the origin, with itself, on the diagonal and above (the rest is
        symmetric). None without any, because adding zeros to such a matrix takes time.
    eps
        Machine epsilon of the floats in which a batch is added up.
    """

    shared_fields: ClassVar[tuple[str, ...]] = ("origin", "eps")

    contexts: int
    origin: Array
    deviations: Array
    squared_deviations: Array
    context_means: Array
    squared_context_means: Array
    flipped: Array
    n_product_contexts: int
    product_context_means: Array
    gram: Array | None
    eps: float


def sum_moments(states: Array, previous: Moments | None = None) -> Moments:
    """Sum the hidden states of one layer over contexts.

    Sums within a batch are float32, or float64 for states in float64; sums of batches are float64
    (on MPS float32).

    Parameters
    ----------
    states
        ``[c, t, d]``: contexts, positions, width; NumPy or torch, of any float type.
    previous
        Moments to which the result will be added, and whose origin it shares; None for the first
        batch.

    Raises
    ------
    InvalidTable
        If the shape is another.
    """
    if states.ndim != 3 or 0 in states.shape:
        raise InvalidTable(
            f"hidden states of shape {list(states.shape)}: [contexts, positions, width] are needed."
        )
    xp = namespace(states)
    count, t, d = states.shape
    wide = xp.float32 if getattr(states.device, "type", "") == "mps" else xp.float64
    if states.dtype != wide:
        states = xp.astype(states, xp.float32)
    origin = xp.mean(states, axis=(0, 1)) if previous is None else previous.origin
    states = states - xp.astype(origin, states.dtype)
    means = xp.mean(states, axis=1)
    deviations = states - means[:, None, :]
    signs = context_signs(0 if previous is None else previous.contexts, count)
    flipped = xp.matmul(
        xp.asarray(signs, dtype=states.dtype, device=states.device),
        xp.reshape(deviations, (count, t * d)),
    )
    # The number of leading contexts does not depend on the batch size.
    n_needed = -(-MAX_PRODUCT_STATES // t)
    n_products = max(
        0, min(count, n_needed - (0 if previous is None else previous.n_product_contexts))
    )
    gram = (
        _multiply_rows(xp.reshape(states[:n_products], (-1, d)), xp)
        if n_products
        else None
    )
    if previous is None:  # Later batches are added to this one, and so become as wide.
        gram = xp.astype(gram, wide)
    return Moments(
        contexts=count,
        origin=xp.astype(origin, wide),
        deviations=xp.astype(xp.sum(deviations, axis=0), wide),
        squared_deviations=xp.astype(xp.sum(deviations * deviations, axis=0), wide),
        context_means=xp.astype(xp.sum(means, axis=0), wide),
        squared_context_means=xp.astype(xp.sum(means**2), wide),
        flipped=xp.reshape(flipped, (N_SIGN_FLIPS, t, d)),
        n_product_contexts=n_products,
        product_context_means=xp.astype(xp.sum(means[:n_products], axis=0), wide),
        gram=gram,
        eps=float(xp.finfo(states.dtype).eps),
    )


def _multiply_rows(rows: Array, xp: ModuleType) -> Array:
    """Return the products ``[d, d]`` of rows ``[n, d]``; blocks below the diagonal stay 0."""
    d = rows.shape[1]
    products = xp.zeros((d, d), dtype=rows.dtype, device=rows.device)
    for start in range(0, d, PRODUCT_BLOCK_COLUMNS):
        block = slice(start, start + PRODUCT_BLOCK_COLUMNS)
        products[block, start:] = xp.matmul(rows[:, block].T, rows[:, start:])
    return products


def context_signs(start: int, count: int) -> NDArray[np.float64]:
    """Return the signs of contexts, ``[N_SIGN_FLIPS, count]``, which are Walsh functions.

    They change after every context, every second, every fourth … from ``start`` on, so that the
    signs of a context do not depend on its batch.
    """
    number = np.arange(start, start + count)
    is_odd = (number >> np.arange(N_SIGN_FLIPS)[:, None] & 1).astype(np.float64)
    signs: NDArray[np.float64] = 1.0 - 2.0 * is_odd
    return signs


def has_finite_sums(sums: Moments) -> Array:
    """Tell, as an array of no dimensions, whether all summed states are finite."""
    xp = namespace(sums.squared_deviations)
    return xp.isfinite(xp.sum(sums.squared_deviations) + sums.squared_context_means)


#: A direction counts if it exceeds the largest mean with flipped signs by this factor. With 64
#: contexts of strongly correlated noise, one run in twenty counts one direction too many.
MIN_RANK_NOISE_RATIO = 1.1
#: Above this share of sampling noise, nothing is said about the structure of what positions add,
#: because most of it is noise.
MAX_POSITION_NOISE_SHARE = 0.5
#: Smaller matrices are reduced as a whole to find the largest eigenvalue. That takes a few
#: milliseconds here, and grows with the cube of the width.
MIN_LANCZOS_ROWS = 256
#: Headline numbers that only a sequence has.
_SEQUENCE_NUMBERS = ("sinusoid.ladder_share",)


@dataclass(frozen=True)
class Shares:
    """Shares of the variance, which add up to 1."""

    position: Share
    context: Share
    rest: Share


# A lambda inside an annotation does not see the names of its module, so these are functions.
def _shares(layer: LayerMeans) -> Shares | None:
    return Shares(**layer.shares) if layer.shares else None


def _error_norms(layer: LayerMeans) -> NDArray[np.float64]:
    return np.asarray(np.linalg.norm(layer.error, axis=1))


@dataclass(frozen=True, eq=False)
class LayerMeans:
    """The decomposition of one layer's hidden states.

    Parameters
    ----------
    mean
        ``[d]``: over contexts and positions.
    pos
        ``[t, d]``: what each position adds to it, on average over contexts.
    error
        ``[t, d]``: standard error of ``pos``, from the spread over contexts; NaN for one context.
    stable_rank
        Stable rank of ``pos``: sum of squared singular values over the largest; None where ``pos``
        is 0.
    rank
        Singular values of ``pos`` above what sampling noise reaches: a tenth more than the largest
        of ``N_SIGN_FLIPS`` means of the same contexts with signs that leave the noise unchanged and
        cancel what positions add (Hong, Sheng & Dobriban 2020, arXiv 2012.02985). With more
        contexts weaker directions stand out. None for one context, and if ``pos`` is 0.
    noise_share
        Share of ``pos`` that is sampling noise: the sum of its squared errors over that of its
        squares; None for one context, and where ``pos`` is 0.
    relative_norm
        Largest singular value of ``pos``, repeated for every context, over that of all states less
        their mean, as in Song & Zhong's code. The latter is of the first contexts that hold
        ``MAX_PRODUCT_STATES`` states, or of all where there are fewer.
    shares
        Shares of the states' variance: ``position``, ``context`` and ``rest``; they add up to 1.
    noise_draws
        Shares of ``position`` by sampling noise alone: one for each of the means with flipped
        signs.
    analyses
        Headline numbers of the table ``pos``, keyed as in `posprobe.measurements.compared_numbers`;
        None where a number is undefined. Empty where they were not measured.
    """

    mean: Annotated[
        NDArray[np.float64], StoredArray("mean", lambda layer: layer.mean.astype("f4"))
    ]
    pos: Annotated[
        NDArray[np.float64], StoredArray("pos", lambda layer: layer.pos.astype("f4"))
    ]
    error: Annotated[NDArray[np.float64], StoredArray("error", _error_norms)]
    stable_rank: float | None
    rank: Annotated[
        Count | None, "Directions of what positions add that stand above sampling noise."
    ]
    noise_share: Annotated[
        Share | None, "Share of what positions add that is sampling noise."
    ]
    relative_norm: float | None
    shares: Annotated[Mapping[str, float] | None, JsonType(Shares | None, _shares)]
    analyses: Annotated[
        Mapping[str, float | None],
        JsonType(dict[str, float | None]),
        "Headline numbers of the table that positions add at this layer, by their key path.",
    ] = field(default_factory=dict)
    noise_draws: Annotated[tuple[float, ...], HIDDEN] = ()

    @property
    def relative_norm_frobenius(self) -> Annotated[float | None, ""]:
        """The same by all singular values: the root of the share of positions."""
        return math.sqrt(self.shares["position"]) if self.shares else None

    @property
    def is_noisy(self) -> bool:
        """Whether more than half of ``pos`` is noise, or, with one context, nothing is known."""
        return self.noise_share is None or self.noise_share > MAX_POSITION_NOISE_SHARE


@dataclass(frozen=True, eq=False, repr=False)
class MeanDecomposition(Result):
    """What positions add to the hidden states of a model, layer by layer.

    Parameters
    ----------
    layers
        Results by number of the layer: 0 is what enters the first layer.
    contexts
        Number of averaged contexts.
    layout, start
        Layout and first of the positions.
    name
        Name of the model.
    stopped
        Whether the run was interrupted, so that there are fewer contexts than were asked for.
    baselines
        The headline numbers of the ``sinusoid`` of that shape and, as ``p5``, ``p50`` and ``p95``,
        of random walks (``walk``), with their ``draws`` and ``seed``; empty where they were not
        measured.
    """

    figures: ClassVar[str] = "states.plot_states"

    layers: Annotated[Mapping[int, LayerMeans], limits(minItems=1), NumberSuffixes()]
    contexts: Natural
    layout: Layout
    start: Count
    name: Annotated[str, HIDDEN]
    stopped: Annotated[bool, HIDDEN] = False
    baselines: Annotated[Mapping[str, Any], HIDDEN] = field(default_factory=dict)

    def table(self, layer: int) -> PositionTable:
        """Return what positions add at a layer as a table, to which all analyses apply.

        Raises
        ------
        UsageError
            If that layer was not measured.
        """
        if layer not in self.layers:
            measured_layers = ", ".join(map(str, self.layers))
            raise UsageError(
                f"{self.name}: layer {layer} was not measured. Choose from {measured_layers}."
            )
        return PositionTable(
            self.layers[layer].pos,
            self.layout,
            name=f"{self.name}, layer {layer}",
            source=Source(
                self.name, f"mean over {self.contexts} contexts at layer {layer}"
            ),
            start=self.start,
            notes=("measured: mean over contexts less the mean over positions",),
        )

    @property
    def undefined(self) -> Annotated[Reasons, ""]:
        """Reason for each number that is None at some layers."""
        equal = [n for n, layer in self.layers.items() if layer.shares is None]
        constant = [n for n, layer in self.layers.items() if layer.stable_rank is None]
        undefined = {}
        if equal:
            undefined["relative_norm"] = (
                f"all hidden states are equal at the layers {equal}"
            )
        if constant:
            undefined["stable_rank"] = f"positions add nothing at the layers {constant}"
        if self.contexts == 1:
            undefined["rank"] = undefined["noise_share"] = (
                "one context has no sampling error"
            )
        elif constant:
            undefined["rank"] = undefined["noise_share"] = undefined["stable_rank"]
        return undefined | self._undefined_numbers()

    def _undefined_numbers(self) -> dict[str, str]:
        """Return why headline numbers are undefined and at which layers, by key."""
        layers_by_key: dict[str, list[int]] = {}
        for number, layer in self.layers.items():
            for key, value in layer.analyses.items():
                if value is None:
                    layers_by_key.setdefault(key, []).append(number)
        return {
            key: "patches are not on a line"
            if isinstance(self.layout, Grid) and key in _SEQUENCE_NUMBERS
            else f"too few positions, or positions add nothing, at the layers {layers}"
            for key, layers in layers_by_key.items()
        }


def build_decomposition(
    sums: Mapping[int, Moments],
    *,
    layout: Layout,
    start: int = 0,
    name: str = "model",
    is_interrupted: bool = False,
) -> MeanDecomposition:
    """Compute the mean decomposition from sums over contexts.

    Parameters
    ----------
    sums
        Results of `sum_moments` by layer, all of the same contexts.
    layout, start, name, is_interrupted
        Fields of `MeanDecomposition`.

    Raises
    ------
    UsageError
        If there are no sums, or the positions do not fill the layout.
    """
    if not sums:
        raise UsageError("there are no hidden states to decompose.")
    for number, layer_sums in sums.items():
        n_positions = layer_sums.deviations.shape[0]
        if n_positions != layout.size:
            raise UsageError(
                f"layer {number}: {n_positions} positions do not fill a {layout}."
            )
    numbers = sorted(sums)
    layers = map_in_parallel(_decompose_layer, [sums[number] for number in numbers], np)
    contexts = next(iter(sums.values())).contexts
    by_number = dict(zip(numbers, layers, strict=True))
    return MeanDecomposition(by_number, contexts, layout, start, name, is_interrupted)


def _decompose_layer(sums: Moments) -> LayerMeans:
    c = sums.contexts
    origin, mean_offset = to_float64(sums.origin), to_float64(sums.context_means) / c
    squared_deviations = to_float64(sums.squared_deviations)
    pos = to_float64(sums.deviations) / c
    t = len(pos)
    error = np.full_like(pos, np.nan)
    if c > 1:
        error = np.sqrt(np.maximum(squared_deviations / c - pos**2, 0.0) / (c - 1))
    context_squares = float(sums.squared_context_means)
    by_position = c * float((pos**2).sum())
    by_context = t * max(context_squares - c * float(mean_offset @ mean_offset), 0.0)
    deviation_power = float(squared_deviations.sum())
    total = deviation_power + by_context
    products = pos @ pos.T if t < len(origin) else pos.T @ pos
    eigenvalues = np.linalg.eigvalsh(products)
    spectral = float(eigenvalues[-1])
    # Centring leaves rounding errors of equal states, up to this power.
    scale = deviation_power + t * context_squares + c * t * float(origin @ origin)
    rounding = (16 * sums.eps) ** 2 * scale
    has_variance, has_positions = total > rounding, by_position > rounding
    residual = max(deviation_power - by_position, 0.0)
    powers_by_term = {"position": by_position, "context": by_context, "rest": residual}
    rank = noise_share = relative_norm = shares = None
    draws: tuple[float, ...] = ()
    if has_positions and c > 1:
        noise, noise_power = _sampling_noise(sums, pos)
        draws = tuple((noise_power / total).tolist()) if has_variance else ()
        # Squared singular values are exact only to the rounding error of the largest.
        min_power = max(
            (MIN_RANK_NOISE_RATIO * noise) ** 2, rounding / c, 1e-13 * spectral
        )
        rank = int(np.count_nonzero(eigenvalues > min_power))
        noise_share = min(1.0, c * float((error**2).sum()) / by_position)
    if has_variance:
        state_power = _largest_eigenvalue(_centre_products(sums))
        relative_norm = math.sqrt(sums.n_product_contexts * spectral / state_power)
        shares = {name: term_power / total for name, term_power in powers_by_term.items()}
    return LayerMeans(
        mean=origin + mean_offset,
        pos=pos,
        error=error,
        stable_rank=float(np.trace(products)) / spectral if has_positions else None,
        rank=rank,
        noise_share=noise_share,
        relative_norm=relative_norm,
        shares=shares,
        noise_draws=draws,
    )


def _centre_products(sums: Moments) -> NDArray[np.float64]:
    """Return the products of hidden states less their mean, from the upper triangle."""
    gram = to_float64(sums.gram)
    means = to_float64(sums.product_context_means)
    mean_products = (
        len(sums.deviations) / sums.n_product_contexts * np.outer(means, means)
    )
    centred: NDArray[np.float64] = np.triu(gram) + np.triu(gram, 1).T - mean_products
    return centred


def _sampling_noise(
    sums: Moments, pos: NDArray[np.float64]
) -> tuple[float, NDArray[np.float64]]:
    """Return the largest singular value of the noise, and its power in each of the means.

    All contexts contain what positions add. If signs do not balance, it is subtracted, and with it
    the same share of the noise.
    """
    c = sums.contexts
    balance = context_signs(0, c).sum(axis=1)
    draws = (to_numpy(sums.flipped).astype(np.float64) - balance[:, None, None] * pos) / c
    remaining = 1 - np.square(balance / c)
    power = c * np.square(draws).sum(axis=(1, 2))
    return max(math.sqrt(_spectral_power(draw)) for draw in draws), power[
        remaining > 0
    ] / remaining[remaining > 0]


def _largest_eigenvalue(matrix: NDArray[np.float64]) -> float:
    """Return the largest eigenvalue of a symmetric matrix without negative eigenvalues."""
    from scipy.linalg import eigvalsh
    from scipy.sparse.linalg import eigsh

    if not matrix.any():
        return 0.0
    last_index = len(matrix) - 1
    if last_index < MIN_LANCZOS_ROWS:
        return float(eigvalsh(matrix, subset_by_index=[last_index, last_index])[0])
    # Lanczos needs only products, whereas reducing the whole matrix would take minutes per model.
    # A fixed start makes results repeatable.
    start = np.random.default_rng(0).standard_normal(len(matrix))
    return float(eigsh(matrix, k=1, which="LA", v0=start, return_eigenvectors=False)[0])


def _spectral_power(matrix: NDArray[np.float64]) -> float:
    """Return the square of a matrix's largest singular value."""
    t, d = matrix.shape
    return _largest_eigenvalue(matrix @ matrix.T if t < d else matrix.T @ matrix)
