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
    every = [p for _, found in commands.values() for p in found]
    counts = Counter((p.shown, p.help) for p in every)
    shared = {p.shown: p for p in every if counts[p.shown, p.help] >= SHARED}
    for name, one in shared.items():
        shared[name] = replace(one, default=_defaults(one, commands))
    about = HEAD.format(about=app.info.help, epilog=app.info.epilog)
    parts = [about, "\n".join(table(list(shared.values())))]
    for name, (command, found) in commands.items():
        parts.append(section(name, command, found, shared))
    return "".join(parts)


def _defaults(one: Parameter, commands: Mapping[str, tuple[Any, list[Parameter]]]) -> str:
    """Return an option's default; where commands differ, the usual one and theirs."""
    own = {
        key: each.default
        for key, (_, found) in commands.items()
        for each in found
        if (each.shown, each.help) == (one.shown, one.help)
    }
    (usual, _), *others = Counter(own.values()).most_common()
    said = [
        f"{default} ({', '.join(key for key, each in own.items() if each == default)})"
        for default, _ in others
    ]
    return "; ".join([usual, *said])


def section(
    name: str, command: Any, parameters: list[Parameter], shared: Mapping[str, Parameter]
) -> str:
    """Return one command: its usage, its description, its arguments and its own options."""
    arguments = [p.shown for p in parameters if isinstance(p.info, ArgumentInfo)]
    usage = " ".join(["posprobe", name, *arguments, "[OPTIONS]"])
    own = [p for p in parameters if p.shown not in shared or p.help != shared[p.shown].help]
    rest = [
        f"`{p.shown.partition(' ')[0]}`"
        for p in parameters
        if p not in own and p.shown not in arguments
    ]
    about = " ".join((inspect.getdoc(command) or "").split())
    lines = [f"\n## {name}\n", f"`{usage}`: {about}\n", *(table(own) if own else ())]
    more = f"{'And' if own else 'It takes'} {', '.join(rest)}." if rest else ""
    return "\n".join([*lines, more, ""] if more else lines)


@dataclass(frozen=True)
class Parameter:
    """What a command takes: how it is typed, what it means, what it is otherwise."""

    info: Any
    shown: str
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
        plain = not any(default is nothing for nothing in (None, False, inspect.Parameter.empty))
        text = str(default) if plain else ""
        yield Parameter(info, shown(name, kind, info), text)


def shown(name: str, kind: Any, info: Any) -> str:
    """Return an argument or option as it is typed."""
    if isinstance(info, ArgumentInfo):
        return str(info.metavar or name.upper())
    # Within Annotated, what stands first is a name and no default.
    first = [info.default] if isinstance(info.default, str) else []
    option = ", ".join([*first, *(info.param_decls or ())])
    if kind is bool:
        return option
    if get_origin(kind) is Literal:
        return f"{option} {' or '.join(get_args(kind))}"
    named = "PATH" if "Path" in str(kind) else "N" if kind is int else "TEXT"
    return f"{option} {info.metavar or named}"


def table(parameters: list[Parameter]) -> Iterator[str]:
    """Yield the lines of a table of parameters."""
    yield "| argument or option | meaning | default |"
    yield "| --- | --- | --- |"
    for parameter in parameters:
        yield f"| `{parameter.shown}` | {parameter.help} | {parameter.default} |"
    yield ""


if __name__ == "__main__":
    TARGET.write_text(document(), encoding="utf-8")
