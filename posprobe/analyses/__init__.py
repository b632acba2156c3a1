"""A table becomes frozen results. Mathematics only: no file, no figure, no model."""

from posprobe.analyses.attention_by_offset import AttentionByOffset
from posprobe.analyses.axis_codes import AxisCodes, axis_codes
from posprobe.analyses.bridging import Bridging, bridging
from posprobe.analyses.grid import Patches, grid
from posprobe.analyses.head_logits import HeadLogits, head_logits
from posprobe.analyses.heads import Heads, heads
from posprobe.analyses.mean_decomposition import MeanDecomposition
from posprobe.analyses.norms import Norms, norms
from posprobe.analyses.pca import PCA, pca
from posprobe.analyses.probes import Probes, probes
from posprobe.analyses.result import Result
from posprobe.analyses.rotation import Rotation, rotation
from posprobe.analyses.scale import Scale, scale
from posprobe.analyses.seams import Seams, seams
from posprobe.analyses.shift import Shift, shift
from posprobe.analyses.similarity import Cosine, Similarity, similarity
from posprobe.analyses.sinusoid import SinusoidFit, against_sinusoid
from posprobe.analyses.smoothness import Smoothness, smoothness
from posprobe.analyses.spectrum import Line, Spectrum, spectrum
from posprobe.analyses.subspaces import subspace_overlap
from posprobe.analyses.timefreq import GramDCT, Spectrogram, gram_dct, spectrogram
from posprobe.analyses.winding import Winding, winding

__all__ = [
    "PCA",
    "AttentionByOffset",
    "AxisCodes",
    "Bridging",
    "Cosine",
    "GramDCT",
    "HeadLogits",
    "Heads",
    "Line",
    "MeanDecomposition",
    "Norms",
    "Patches",
    "Probes",
    "Result",
    "Rotation",
    "Scale",
    "Seams",
    "Shift",
    "Similarity",
    "SinusoidFit",
    "Smoothness",
    "Spectrogram",
    "Spectrum",
    "Winding",
    "against_sinusoid",
    "axis_codes",
    "bridging",
    "gram_dct",
    "grid",
    "head_logits",
    "heads",
    "norms",
    "pca",
    "probes",
    "rotation",
    "scale",
    "seams",
    "shift",
    "similarity",
    "smoothness",
    "spectrogram",
    "spectrum",
    "subspace_overlap",
    "winding",
]
