"""A table becomes frozen results. Mathematics only: no file, no figure, no model."""

from posprobe.analyses.breaks.seams import Seams as Seams, seams as seams
from posprobe.analyses.composition.bridging import (
    Bridging as Bridging,
    bridging as bridging,
)
from posprobe.analyses.composition.budget import Budget as Budget, budget as budget
from posprobe.analyses.composition.rotation_clock import Clock as Clock, clock as clock
from posprobe.analyses.descriptive.grid import (
    AxisCodes as AxisCodes,
    Patches as Patches,
    VideoCodes as VideoCodes,
    axis_codes as axis_codes,
    grid as grid,
    video_codes as video_codes,
)
from posprobe.analyses.descriptive.norms import (
    Norms as Norms,
    Scale as Scale,
    norms as norms,
    scale as scale,
)
from posprobe.analyses.descriptive.pca import PCA as PCA, pca as pca
from posprobe.analyses.descriptive.probes import Probes as Probes, probes as probes
from posprobe.analyses.descriptive.shift import Shift as Shift, shift as shift
from posprobe.analyses.descriptive.similarity import (
    Cosine as Cosine,
    Similarity as Similarity,
    similarity as similarity,
)
from posprobe.analyses.descriptive.sinusoid import (
    SinusoidFit as SinusoidFit,
    against_sinusoid as against_sinusoid,
)
from posprobe.analyses.descriptive.spectrum import (
    Line as Line,
    Spectrogram as Spectrogram,
    Spectrum as Spectrum,
    spectrogram as spectrogram,
    spectrum as spectrum,
)
from posprobe.analyses.descriptive.winding import Winding as Winding, winding as winding
from posprobe.analyses.models.attention import AttentionByOffset as AttentionByOffset
from posprobe.analyses.models.head_biases import (
    Heads as Heads,
    Smoothness as Smoothness,
    heads as heads,
    smoothness as smoothness,
)
from posprobe.analyses.models.rotary import Rotation as Rotation, rotation as rotation
from posprobe.analyses.models.states import MeanDecomposition as MeanDecomposition
from posprobe.analyses.models.subspaces import subspace_overlap as subspace_overlap
from posprobe.analyses.result import Result as Result
