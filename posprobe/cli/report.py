"""``posprobe report``: render a saved bundle again, or list a folder of bundles."""

from pathlib import Path

from posprobe.cli.show import print_path
from posprobe.progress import stage


def report(folder: Path) -> None:
    """Render a saved report again, without the model.

    For a folder that contains several reports, write an index.html that lists them.
    """
    with stage("Rendering"):
        from posprobe.report import render_bundle
        from posprobe.report.files import expanded, there
        from posprobe.report.index import write_index

        is_bundle = there(expanded(folder) / "analysis.json")
        page = render_bundle(folder) if is_bundle else write_index(folder)
    print_path(page)
