"""A table becomes frozen results. Mathematics only: no file, no figure, no model."""

from posprobe.analyses.attention_by_offset import AttentionByOffset as AttentionByOffset
from posprobe.analyses.axis_codes import AxisCodes as AxisCodes, axis_codes as axis_codes
from posprobe.analyses.bridging import Bridging as Bridging, bridging as bridging
from posprobe.analyses.budget import Budget as Budget, budget as budget
from posprobe.analyses.clock import Clock as Clock, clock as clock
from posprobe.analyses.grid import Patches as Patches, grid as grid
from posprobe.analyses.head_logits import HeadLogits as HeadLogits, head_logits as head_logits
from posprobe.analyses.heads import Heads as Heads, heads as heads
from posprobe.analyses.mean_decomposition import MeanDecomposition as MeanDecomposition
from posprobe.analyses.norms import Norms as Norms, norms as norms
from posprobe.analyses.pca import PCA as PCA, pca as pca
from posprobe.analyses.probes import Probes as Probes, probes as probes
from posprobe.analyses.result import Result as Result
from posprobe.analyses.rotation import Rotation as Rotation, rotation as rotation
from posprobe.analyses.scale import Scale as Scale, scale as scale
from posprobe.analyses.seams import Seams as Seams, seams as seams
from posprobe.analyses.shift import Shift as Shift, shift as shift
from posprobe.analyses.similarity import (
    Cosine as Cosine,
    Similarity as Similarity,
    similarity as similarity,
)
from posprobe.analyses.sinusoid import (
    SinusoidFit as SinusoidFit,
    against_sinusoid as against_sinusoid,
)
from posprobe.analyses.smoothness import Smoothness as Smoothness, smoothness as smoothness
from posprobe.analyses.spectrum import Line as Line, Spectrum as Spectrum, spectrum as spectrum
from posprobe.analyses.subspaces import subspace_overlap as subspace_overlap
from posprobe.analyses.timefreq import (
    GramDCT as GramDCT,
    Spectrogram as Spectrogram,
    gram_dct as gram_dct,
    spectrogram as spectrogram,
)
from posprobe.analyses.winding import Winding as Winding, winding as winding
