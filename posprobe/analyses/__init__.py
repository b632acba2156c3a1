"""A table becomes frozen results. Mathematics only: no file, no figure, no model."""

from posprobe.analyses.grid import Patches, grid
from posprobe.analyses.norms import Norms, norms
from posprobe.analyses.pca import PCA, pca
from posprobe.analyses.result import Result
from posprobe.analyses.similarity import Cosine, Similarity, similarity
from posprobe.analyses.spectrum import Line, Spectrum, spectrum

__all__ = [
    "PCA",
    "Cosine",
    "Line",
    "Norms",
    "Patches",
    "Result",
    "Similarity",
    "Spectrum",
    "grid",
    "norms",
    "pca",
    "similarity",
    "spectrum",
]
