"""Help in panels, in plain text: rich takes twice as long to start."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

#: Options that help shows before all others: those that a command's signature names first.
FIRST = 5


class Command(TyperCommand):
    """A command whose help shows its most used options first."""

    def format_options(self, ctx: typer.Context, formatter: Any) -> None:  # type: ignore[override]
        """Write the arguments, the most used options and the others."""
        found: dict[str, list[tuple[str, str]]] = {"argument": [], "option": []}
        for parameter in self.get_params(ctx):
            if record := parameter.get_help_record(ctx):
                found[parameter.param_type_name].append(record)
        options = found["option"]
        # The last of them is --help.
        first = FIRST if len(options) > FIRST + 1 else len(options)
        panels = {
            "Arguments": found["argument"],
            "Options": options[:first],
            "More options": options[first:],
        }
        for title, records in panels.items():
            if records:
                with formatter.section(title):
                    formatter.write_dl(records)


class Group(TyperGroup):
    """Commands by what they are for."""

    def format_commands(self, ctx: typer.Context, formatter: Any) -> None:  # type: ignore[override]  # noqa: ARG002
        """Write a panel for each purpose."""
        panels: dict[str, list[tuple[str, str]]] = defaultdict(list)
        limit = formatter.width - 6 - max(map(len, self.commands))
        for name, command in self.commands.items():
            if not command.hidden:
                panel = str(getattr(command, "rich_help_panel", ""))
                panels[panel].append((name, command.get_short_help_str(limit)))
        for title, records in panels.items():
            with formatter.section(title):
                formatter.write_dl(records, col_max=12)
