"""The command: the completions of each shell, made from the parser of the command line."""

import argparse
import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

from otel_zernel.cli.output import print_result
from otel_zernel.command import Command
from otel_zernel_commands.completion.described import (
    PROGRAM,
    DescribedArgument,
    DescribedCommand,
    described_commands,
    every_command,
)

_DESCRIPTION: Final = """Prints the completions of a shell for the installed commands. Load them with
`eval "$(otel-zernel completion bash)"` in ~/.bashrc, with `eval "$(otel-zernel completion zsh)"` in ~/.zshrc behind
compinit, or with `otel-zernel completion fish | source` in ~/.config/fish/config.fish."""


class CompletionCommand(Command):
    """`otel-zernel completion`."""

    name = "completion"
    help = "print the completions of a shell"
    description = _DESCRIPTION

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("shell", choices=tuple(_SHELLS), metavar="SHELL", help="bash, zsh or fish")

    def run(self, options: argparse.Namespace) -> int:
        print_result(_SHELLS[options.shell](described_commands(every_command())))
        return 0


def _key(command: DescribedCommand) -> str:
    return " ".join(command.words)


def _next_words(commands: Sequence[DescribedCommand], words: tuple[str, ...]) -> list[str]:
    """The actions of a command, or all commands for no word."""
    return [command.words[-1] for command in commands if command.words[:-1] == words]


def _positional(command: DescribedCommand) -> list[DescribedArgument]:
    return [argument for argument in command.arguments if not argument.names]


def _bash(commands: Sequence[DescribedCommand]) -> str:
    names = " ".join(_next_words(commands, ()))
    cases, values = [], []
    for command in commands:
        words = [
            *_next_words(commands, command.words),
            *(name for argument in command.arguments for name in argument.names),
        ]
        words += [choice for argument in _positional(command) for choice in argument.choices if choice not in words]
        takes_files = any(argument.is_path for argument in _positional(command))
        cases.append(f'        "{_key(command)}") words="{" ".join(words)}"{" files=yes" if takes_files else ""} ;;')
        for option in command.arguments:
            if option.names and option.value:
                patterns = "|".join(f'"{_key(command)} {name}"' for name in option.names)
                values.append(f"        {patterns}) {_bash_value(option)} ;;")
    return _BASH.format(
        program=PROGRAM,
        commands=names,
        actions="|".join(f'"{_key(command)}"' for command in commands if len(command.words) > 1) or '""',
        cases="\n".join(cases),
        values="\n".join(values),
    )


def _bash_value(option: DescribedArgument) -> str:
    if option.choices:
        return f'COMPREPLY=($(compgen -W "{" ".join(option.choices)}" -- "$current")); return'
    return "words= files=yes" if option.is_path else "return"


_BASH: Final = """# Completions of {program} for bash: eval "$({program} completion bash)"
_otel_zernel() {{
    local current="${{COMP_WORDS[COMP_CWORD]}}" previous="${{COMP_WORDS[COMP_CWORD - 1]}}" command words files=
    COMPREPLY=()
    if ((COMP_CWORD == 1)); then
        COMPREPLY=($(compgen -W "{commands} --help --version" -- "$current"))
        return
    fi
    command="${{COMP_WORDS[1]}}"
    if ((COMP_CWORD > 2)); then
        case "$command ${{COMP_WORDS[2]}}" in
        {actions}) command="$command ${{COMP_WORDS[2]}}" ;;
        esac
    fi
    case "$command" in
{cases}
    esac
    case "$command $previous" in
{values}
    esac
    COMPREPLY=($(compgen -W "$words" -- "$current"))
    if [[ $files && $current != -* ]]; then
        COMPREPLY+=($(compgen -f -- "$current"))
        compopt -o filenames 2>/dev/null
    fi
}}
complete -F _otel_zernel {program}
"""


def _zsh(commands: Sequence[DescribedCommand]) -> str:
    cases = []
    for command in commands:
        specs = [*_zsh_specs(command)]
        if actions := _next_words(commands, command.words):
            specs.append(f"'1:ACTION:({' '.join(actions)})'")
        arguments = "".join(f" \\\n            {spec}" for spec in specs)
        cases.append(f'    "{_key(command)}")\n        _arguments -S{arguments} ;;')
    helps = [f"{command.words[0]}:{command.help}" for command in commands if len(command.words) == 1]
    return _ZSH.format(
        program=PROGRAM,
        commands="\n".join(f"        {shlex.quote(line)}" for line in helps),
        actions="|".join(f'"{_key(command)}"' for command in commands if len(command.words) > 1) or '""',
        cases="\n".join(cases),
    )


def _zsh_specs(command: DescribedCommand) -> Iterator[str]:
    position = 0
    for argument in command.arguments:
        values = f"({' '.join(argument.choices)})" if argument.choices else "_files" if argument.is_path else " "
        text = re.sub(r"([\[\]:\\])", r"\\\1", argument.help)
        if not argument.names:
            position += 1
            offered = values.strip() or "()"  # a message in place of words would hide the options
            yield shlex.quote(f"{'*' if argument.repeats else position}:{argument.value}:{offered}")
            continue
        for name in argument.names:
            taken = "".join(f":{word}:{values}" for word in argument.value.split())
            yield shlex.quote(f"{name}[{text}]{taken}")


_ZSH: Final = """#compdef {program}
# Completions of {program} for zsh: eval "$({program} completion zsh)"
_otel_zernel() {{
    local -a commands
    commands=(
{commands}
    )
    if ((CURRENT == 2)); then
        _describe command commands
        return
    fi
    local command="$words[2]" skipped=1
    if ((CURRENT > 3)); then
        case "$command $words[3]" in
        {actions}) command="$command $words[3]" skipped=2 ;;
        esac
    fi
    shift $skipped words
    ((CURRENT -= skipped))
    case "$command" in
{cases}
    esac
}}
if [[ "$funcstack[1]" == _otel-zernel ]]; then
    _otel_zernel "$@"
else
    compdef _otel_zernel {program}
fi
"""


def _fish(commands: Sequence[DescribedCommand]) -> str:
    lines = [f"# Completions of {PROGRAM} for fish: {PROGRAM} completion fish | source", f"complete -c {PROGRAM} -f"]
    for command in commands:
        *above, name = command.words
        condition = f"__fish_seen_subcommand_from {above[0]}" if above else "__fish_use_subcommand"
        lines.append(f"complete -c {PROGRAM} -n {shlex.quote(condition)} -a {name} -d {shlex.quote(command.help)}")
        condition = "; and ".join(f"__fish_seen_subcommand_from {word}" for word in command.words)
        lines += [f"complete -c {PROGRAM} -n {shlex.quote(condition)} {words}" for words in _fish_words(command)]
    return "\n".join(lines)


def _fish_words(command: DescribedCommand) -> Iterator[str]:
    for argument in command.arguments:
        values = (
            f" -x -a {shlex.quote(' '.join(argument.choices))}"
            if argument.choices
            else " -r -F"
            if argument.is_path
            else " -x"
        )
        if not argument.names:
            if argument.choices or argument.is_path:
                yield f"-a {shlex.quote(' '.join(argument.choices))}" if argument.choices else "-F"
            continue
        names = " ".join(f"-l {name[2:]}" if name.startswith("--") else f"-s {name[1:]}" for name in argument.names)
        yield f"{names}{values if argument.value else ''} -d {shlex.quote(argument.help)}"


_SHELLS: Final[Mapping[str, Callable[[Sequence[DescribedCommand]], str]]] = {"bash": _bash, "zsh": _zsh, "fish": _fish}
