"""What is installed: types, licences, samples, templates, the schema, one version."""

from __future__ import annotations

import re
import shutil
import subprocess
import tarfile
import tomllib
import zipfile
from email import message_from_bytes
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest

import posprobe
from posprobe.samples import samples

REPOSITORY = Path(__file__).parents[2]
PACKAGE = Path(posprobe.__file__).parent
#: Every file of the package.
FILES = {
    f"posprobe/{path.relative_to(PACKAGE).as_posix()}"
    for path in PACKAGE.rglob("*")
    if path.is_file() and "__pycache__" not in path.parts
}


@pytest.fixture(scope="module")
def project() -> dict[str, Any]:
    return tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The wheel and the source archive, built once from a copy of the working tree."""
    if shutil.which("uv") is None:
        pytest.skip("uv is not installed, and it is what builds the package")
    place = tmp_path_factory.mktemp("build")
    source = shutil.copytree(
        REPOSITORY,
        place / "source",
        ignore=shutil.ignore_patterns(
            ".*", "__pycache__", "reports", "dist", "*.egg-info"
        ),
    )
    completed = subprocess.run(
        ["uv", "build", "--out-dir", str(place / "dist"), str(source)],
        capture_output=True,
        text=True,
        check=False,
    )
    if completed.returncode and re.search(
        "error sending request|dns error|offline", completed.stderr
    ):
        pytest.skip("no package registry to fetch the build backend from")
    assert completed.returncode == 0, completed.stderr
    (wheel,) = (place / "dist").glob("*.whl")
    (archive,) = (place / "dist").glob("*.tar.gz")
    return wheel, archive


def test_the_wheel_holds_the_package_and_nothing_else(built: tuple[Path, Path]) -> None:
    with zipfile.ZipFile(built[0]) as wheel:
        names = set(wheel.namelist())
        assert names >= FILES
        info = f"posprobe-{version('posprobe')}.dist-info"
        assert {name.split("/")[0] for name in names} == {"posprobe", info}
        for licence in ("LICENSE", "posprobe/samples/NOTICE"):
            stored = wheel.read(f"{info}/licenses/{licence}")
            assert stored == (REPOSITORY / licence).read_bytes()
        described = message_from_bytes(wheel.read(f"{info}/METADATA"))
        assert b"posprobe = posprobe.__main__:main" in wheel.read(
            f"{info}/entry_points.txt"
        )
        sizes = {item.filename: item.file_size for item in wheel.infolist()}
    assert sum(size for name, size in sizes.items() if "/samples/" in name) < 2_400_000
    assert described["Version"] == version("posprobe")
    assert described["License-Expression"] == "Apache-2.0"
    assert described["Requires-Python"] == ">=3.11"
    core = [
        need
        for need in described.get_all("Requires-Dist", [])
        if "extra ==" not in str(need)
    ]
    assert len(core) >= 5
    assert not [need for need in core if re.match("torch|transformers|timm", str(need))]


def test_the_source_archive_holds_tests_and_documents(built: tuple[Path, Path]) -> None:
    with tarfile.open(built[1]) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {
        "README.md",
        "LICENSE",
        "pyproject.toml",
        "tests/report/test_frame.py",
    } <= names
    assert names >= FILES


def test_there_is_one_version(project: dict[str, Any]) -> None:
    declared = project["project"]["version"]
    assert version("posprobe") == declared
    assert posprobe.__version__ == declared
    citation = (REPOSITORY / "CITATION.cff").read_text(encoding="utf-8")
    cited = re.findall(r"^version: [\"']?(.+?)[\"']?$", citation, re.MULTILINE)
    assert cited == [declared]


def test_the_notice_names_every_sample_with_its_licence() -> None:
    notice = files("posprobe.samples").joinpath("NOTICE").read_text(encoding="utf-8")
    for sample in samples():
        assert sample.name in notice
        assert sample.licence.split()[0] in notice


def test_extras_hold_what_is_heavy_and_every_bound_is_a_lowest(
    project: dict[str, Any],
) -> None:
    assert all(">=" in need for need in project["project"]["dependencies"])
    extras = project["project"]["optional-dependencies"]
    heavy = {re.split("[<>=]", need)[0] for need in extras["models"]}
    assert heavy >= {"timm", "torch", "transformers"}
    assert project["tool"]["uv"]["default-groups"] == []
