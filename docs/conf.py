"""How Sphinx builds the documentation; CONTRIBUTING.md has the command."""

import shutil
from importlib.metadata import version as version_of
from pathlib import Path

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

# Notebooks are stored without outputs and outside this folder: they are copied here and executed.
NOTEBOOKS = HERE / "notebooks"
shutil.copytree(HERE.parent / "notebooks", NOTEBOOKS, dirs_exist_ok=True)
with (NOTEBOOKS / "README.md").open("a", encoding="utf-8") as readme:
    readme.write("\n```{toctree}\n:hidden:\n:glob:\n\n[0-9]*\n```\n")
nb_execution_mode = "cache"
nb_execution_in_temp = True
nb_execution_raise_on_error = True
nb_execution_timeout = 300
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
