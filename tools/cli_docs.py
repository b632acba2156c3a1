"""Write docs/cli.md from the commands themselves: what they take, and what each option means.

    uv run python tools/cli_docs.py

A test compares the file with what this prints.
"""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

from typer.models import ArgumentInfo

from posprobe.cli import app

TARGET = Path(__file__).parent.parent / "docs" / "cli.md"

HEAD = """# Commands

{about} {epilog} Results go to stdout, messages to stderr. `posprobe --debug COMMAND …` shows the
traceback of an error. This page is made by `tools/cli_docs.py`.

Of several commands:

"""


#: Options that as many commands have stand once, above all commands.
SHARED = 3


def document() -> str:
    """Return the whole page."""
    commands = {
        str(command.name): (command.callback, list(read(command.callback)))
        for command in app.registered_commands
        if not command.hidden
    }
    all_parameters = [p for _, parameters in commands.values() for p in parameters]
    counts = Counter((p.label, p.help) for p in all_parameters)
    shared = {p.label: p for p in all_parameters if counts[p.label, p.help] >= SHARED}
    for name, parameter in shared.items():
        shared[name] = replace(parameter, default=_defaults(parameter, commands))
    head = HEAD.format(about=app.info.help, epilog=app.info.epilog)
    parts = [head, "\n".join(table(list(shared.values())))]
    for name, (command, parameters) in commands.items():
        parts.append(section(name, command, parameters, shared))
    return "".join(parts)


def _defaults(
    parameter: Parameter, commands: Mapping[str, tuple[Any, list[Parameter]]]
) -> str:
    """Return an option's default; where commands differ, the usual one and theirs."""
    defaults = {
        key: candidate.default
        for key, (_, parameters) in commands.items()
        for candidate in parameters
        if (candidate.label, candidate.help) == (parameter.label, parameter.help)
    }
    (common_default, _), *exceptions = Counter(defaults.values()).most_common()
    texts = [
        f"{default} ({', '.join(key for key, value in defaults.items() if value == default)})"
        for default, _ in exceptions
    ]
    return "; ".join([common_default, *texts])


def section(
    name: str, command: Any, parameters: list[Parameter], shared: Mapping[str, Parameter]
) -> str:
    """Return one command: its usage, its description, its arguments and its own options."""
    arguments = [p.label for p in parameters if isinstance(p.info, ArgumentInfo)]
    usage = " ".join(["posprobe", name, *arguments, "[OPTIONS]"])
    own_parameters = [
        p for p in parameters if p.label not in shared or p.help != shared[p.label].help
    ]
    shared_names = [
        f"`{p.label.partition(' ')[0]}`"
        for p in parameters
        if p not in own_parameters and p.label not in arguments
    ]
    description = " ".join((inspect.getdoc(command) or "").split())
    lines = [
        f"\n## {name}\n",
        f"`{usage}`: {description}\n",
        *(table(own_parameters) if own_parameters else ()),
    ]
    suffix = (
        f"{'And' if own_parameters else 'It takes'} {', '.join(shared_names)}."
        if shared_names
        else ""
    )
    return "\n".join([*lines, suffix, ""] if suffix else lines)


@dataclass(frozen=True)
class Parameter:
    """What a command takes: how it is typed, what it means, what it is otherwise."""

    info: Any
    label: str
    default: str

    @property
    def help(self) -> str:
        """What it means."""
        return str(self.info.help)


def read(command: Any) -> Iterator[Parameter]:
    """Read the parameters of a command from its signature."""
    hints = get_type_hints(command, include_extras=True)
    for name, parameter in inspect.signature(command).parameters.items():
        kind, info = get_args(hints[name])
        default = parameter.default
        plain = not any(
            default is empty for empty in (None, False, inspect.Parameter.empty)
        )
        text = str(default) if plain else ""
        yield Parameter(info, shown(name, kind, info), text)


def shown(name: str, kind: Any, info: Any) -> str:
    """Return an argument or option as it is typed."""
    if isinstance(info, ArgumentInfo):
        return str(info.metavar or name.upper())
    # Within Annotated, what stands first is a name and no default.
    flags = [info.default] if isinstance(info.default, str) else []
    option = ", ".join([*flags, *(info.param_decls or ())])
    if kind is bool:
        return option
    if get_origin(kind) is Literal:
        return f"{option} {' or '.join(get_args(kind))}"
    placeholder = "PATH" if "Path" in str(kind) else "N" if kind is int else "TEXT"
    return f"{option} {info.metavar or placeholder}"


def table(parameters: list[Parameter]) -> Iterator[str]:
    """Yield the lines of a table of parameters."""
    yield "| argument or option | meaning | default |"
    yield "| --- | --- | --- |"
    for parameter in parameters:
        yield f"| `{parameter.label}` | {parameter.help} | {parameter.default} |"
    yield ""


if __name__ == "__main__":
    TARGET.write_text(document(), encoding="utf-8")
