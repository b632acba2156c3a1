"""A table becomes frozen results. Mathematics only: no file, no figure, no model."""

from posprobe.analyses.grids.grid import (
    AxisCodes as AxisCodes,
    Patches as Patches,
    axis_codes as axis_codes,
    grid as grid,
)
from posprobe.analyses.models.attention import AttentionByOffset as AttentionByOffset
from posprobe.analyses.models.head_biases import (
    Heads as Heads,
    Smoothness as Smoothness,
    heads as heads,
    smoothness as smoothness,
)
from posprobe.analyses.models.head_logits import (
    HeadLogits as HeadLogits,
    head_logits as head_logits,
)
from posprobe.analyses.models.rotary import Rotation as Rotation, rotation as rotation
from posprobe.analyses.models.states import MeanDecomposition as MeanDecomposition
from posprobe.analyses.models.subspaces import subspace_overlap as subspace_overlap
from posprobe.analyses.result import Result as Result
from posprobe.analyses.sequences.budget import (
    Budget as Budget,
    Clock as Clock,
    budget as budget,
    clock as clock,
)
from posprobe.analyses.sequences.seams import Seams as Seams, seams as seams
from posprobe.analyses.sequences.shift import Shift as Shift, shift as shift
from posprobe.analyses.sequences.spectrum import (
    Line as Line,
    Spectrogram as Spectrogram,
    Spectrum as Spectrum,
    spectrogram as spectrogram,
    spectrum as spectrum,
)
from posprobe.analyses.sequences.winding import Winding as Winding, winding as winding
from posprobe.analyses.tables.bridging import Bridging as Bridging, bridging as bridging
from posprobe.analyses.tables.norms import (
    Norms as Norms,
    Scale as Scale,
    norms as norms,
    scale as scale,
)
from posprobe.analyses.tables.pca import PCA as PCA, pca as pca
from posprobe.analyses.tables.probes import Probes as Probes, probes as probes
from posprobe.analyses.tables.similarity import (
    Cosine as Cosine,
    Similarity as Similarity,
    similarity as similarity,
)
from posprobe.analyses.tables.sinusoid import (
    SinusoidFit as SinusoidFit,
    against_sinusoid as against_sinusoid,
)
