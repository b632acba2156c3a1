"""What lies in memory, as real numbers: refused where some of what it says would be lost."""

from __future__ import annotations

from typing import Any

from posprobe.errors import InvalidTable

#: What to do about an integer tensor.
INTEGERS = (
    "An integer tensor is an index buffer or a quantised weight: analyse the checkpoint in its "
    "float format."
)
#: What to do about other numbers, by the kind of their dtype as NumPy calls it.
_HINTS = {
    "b": "An array of booleans is a mask: pass the table that it belongs to.",
    "c": "Of complex numbers pass one part, x.real or x.imag, or both beside each other: "
    "numpy.concatenate([x.real, x.imag], axis=1).",
    "O": "Where all of these Python objects are numbers, pass x.astype(float).",
    "S": "Where all of this text is numbers, pass x.astype(float).",
    "U": "Where all of this text is numbers, pass x.astype(float).",
    "float8": "A float of 8 bits is a quantised number, and its scale is stored apart: pass "
    "x.astype(numpy.float32), or x.float() of torch, times that scale.",
}
_OTHER = "Pass an array of the numbers alone."


def real_numbers(values: Any, name: str) -> Any:
    """Return the torch tensor that ``values`` is, or what it is to NumPy: integers or floats.

    Raises
    ------
    InvalidTable
        If it holds anything but real numbers, or some of them are masked, quantised or not there.
    """
    import numpy as np

    if hasattr(values, "detach"):
        return _dense(values.detach(), name)
    parts = values if isinstance(values, list | tuple) else (values,)
    if any(np.ma.is_masked(part) for part in parts):
        raise InvalidTable(
            f"{name}: numbers of this masked array are masked out, and a table has no gaps. Leave "
            "out their rows, or fill them: x.filled(VALUE)."
        )
    try:
        array = np.asarray(values)
    except (TypeError, ValueError, RuntimeError) as error:
        tensors = any(hasattr(part, "detach") for part in parts)
        pass_ = "torch.stack(x)" if tensors else "an array, or rows of as many numbers each"
        raise InvalidTable(
            f"{name}: {type(values).__name__} is not an array of numbers "
            f"({str(error).partition('.')[0][:120]}). Pass {pass_}."
        ) from error
    if array.ndim == 0 and array.dtype.kind != "f":
        raise InvalidTable(
            f"{name}: {type(values).__name__} is not an array of numbers. Pass the parameter "
            "itself, such as model.wpe.weight."
        )
    if array.dtype.name == "bfloat16":  # of JAX: NumPy has none of its own
        return array.astype(np.float32)
    if array.dtype.kind not in "iuf" or array.dtype.name.startswith("float8"):
        raise _refused(name, array.shape, str(array.dtype), array.dtype.kind)
    return array


def _dense(tensor: Any, name: str) -> Any:
    """Return a torch tensor whose numbers lie in memory as they are."""
    dtype, layout = (str(of).removeprefix("torch.") for of in (tensor.dtype, tensor.layout))
    if tensor.is_quantized:
        problem = "it is quantised. Pass x.dequantize()."
    elif tensor.is_nested:
        problem = "its rows are nested, of any length. Pass rows of as many numbers each."
    elif layout != "strided":
        problem = f"its layout is {layout}. Pass x.to_dense()."
    elif tensor.is_meta:
        problem = "it has a shape and no values. Load the weights first."
    elif tensor.is_complex() or dtype == "bool" or dtype.startswith("float8"):
        raise _refused(name, tensor.shape, dtype, "c" if tensor.is_complex() else "b")
    else:
        return tensor.resolve_neg()
    raise InvalidTable(f"{name}: tensor of dtype {dtype}: {problem}")


def _refused(name: str, shape: Any, dtype: str, kind: str) -> InvalidTable:
    hint = _HINTS["float8"] if dtype.startswith("float8") else _HINTS.get(kind, _OTHER)
    return InvalidTable(
        f"{name}: table of shape {list(shape)}, dtype {dtype}: a position table holds "
        f"floating-point numbers. {hint}"
    )
