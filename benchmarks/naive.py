"""The script that a user would write instead: load the model, measure, save four figures."""

from __future__ import annotations

import argparse
from pathlib import Path

import matplotlib as mpl

mpl.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
from sklearn.decomposition import PCA
from sklearn.metrics.pairwise import cosine_similarity
from transformers import AutoModel


def main(checkpoint: str, folder: Path) -> None:
    """Analyse the position table of a GPT-2 checkpoint into four pictures."""
    folder.mkdir(parents=True, exist_ok=True)
    model = AutoModel.from_pretrained(checkpoint)
    table = model.wpe.weight.detach().numpy()
    cosine = cosine_similarity(table)
    pca = PCA().fit(table)
    scores = pca.transform(table)
    power = np.abs(np.fft.rfft(table - table.mean(axis=0), axis=0)) ** 2

    plt.figure()
    plt.imshow(cosine, cmap="RdBu_r", vmin=-1, vmax=1)
    plt.colorbar()
    plt.savefig(folder / "similarity.png", dpi=200)
    plt.figure()
    plt.plot(np.cumsum(pca.explained_variance_ratio_))
    plt.savefig(folder / "variance.png", dpi=200)
    plt.figure()
    plt.plot(scores[:, :6])
    plt.savefig(folder / "components.png", dpi=200)
    plt.figure()
    plt.loglog(power.sum(axis=1)[1:])
    plt.savefig(folder / "spectrum.png", dpi=200)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("checkpoint", help="folder of a GPT-2 checkpoint")
    parser.add_argument("folder", type=Path, help="where the figures are saved")
    options = parser.parse_args()
    main(options.checkpoint, options.folder)
