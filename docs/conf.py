"""How Sphinx builds the documentation; CONTRIBUTING.md has the command."""

from __future__ import annotations

import shutil
from importlib.metadata import version as version_of
from pathlib import Path
from typing import TYPE_CHECKING, Any

from docutils.nodes import SkipNode
from latex2mathml.converter import convert

if TYPE_CHECKING:
    from docutils.nodes import math, math_block
    from sphinx.application import Sphinx

HERE = Path(__file__).parent

project = "posprobe"
author = "The posprobe authors"
copyright = author  # noqa: A001 - Sphinx asks for this name
version = release = version_of("posprobe")

extensions = ["myst_nb", "numpydoc", "sphinx.ext.autodoc", "sphinx.ext.autosummary"]
exclude_patterns = ["_build", "_templates"]
templates_path = ["_templates"]
# In docstrings a name between single backticks is a Python name.
default_role = "py:obj"

autodoc_member_order = "bysource"
autodoc_typehints = "none"
autosummary_generate = True
numpydoc_show_class_members = False

myst_enable_extensions = ["dollarmath"]
myst_heading_anchors = 3

# Notebooks are stored outside this folder, with outputs that tests hold: they are copied here.
NOTEBOOKS = HERE / "notebooks"
shutil.copytree(HERE.parent / "notebooks", NOTEBOOKS, dirs_exist_ok=True)
with (NOTEBOOKS / "README.md").open("a", encoding="utf-8") as readme:
    readme.write("\n```{toctree}\n:hidden:\n:glob:\n\n[0-9]*\n```\n")
nb_execution_mode = "off"
nb_merge_streams = True

html_theme = "pydata_sphinx_theme"
html_title = f"posprobe {release}"
html_show_sourcelink = False
html_theme_options = {
    "footer_start": ["copyright"],
    "footer_end": [],
    "header_links_before_dropdown": 7,
    "navigation_with_keys": False,
    "show_toc_level": 2,
}
html_math_renderer = "mathml"


def inline_math(self: Any, node: math) -> None:
    """Write a formula as MathML, which browsers show without a script from elsewhere."""
    self.body.append(convert(node.astext()))
    raise SkipNode


def displayed_math(self: Any, node: math_block) -> None:
    """Write a formula on lines of its own."""
    self.body.append(convert(node.astext(), display="block"))
    raise SkipNode


def setup(app: Sphinx) -> None:
    """Tell Sphinx how formulas are written."""
    app.add_html_math_renderer("mathml", (inline_math, None), (displayed_math, None))
