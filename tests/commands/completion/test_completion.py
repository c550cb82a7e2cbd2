"""The completions of shells have every command and option of the parser, and bash completes with them."""

import shlex
import shutil
import subprocess
from functools import cache

import pytest

from otel_zernel_commands.completion import DescribedCommand, described_commands, every_command
from tests.core.cli.running import command

COMMANDS: list[DescribedCommand] = described_commands(every_command())


@cache
def script(shell: str) -> str:
    done = command("completion", shell)
    assert done.returncode == 0
    return done.stdout


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_it_has_every_command_and_option(shell: str) -> None:
    text = script(shell)
    for one in COMMANDS:
        assert one.words[-1] in text
        names = {name for argument in one.arguments for name in argument.names}
        assert {name for name in names if (name if shell != "fish" else f" {name.lstrip('-')} ") not in text} == set()


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_shell_reads_it(shell: str) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    done = subprocess.run([shell, "-n"], input=script(shell), capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def completed(*words: str) -> set[str]:
    """What bash offers for the last word."""
    line = f"COMP_WORDS=({shlex.join(words)}); COMP_CWORD={len(words) - 1}; _otel_zernel"
    line += "; printf '%s\\n' \"${COMPREPLY[@]}\""
    done = subprocess.run(["bash", "-c", f"{script('bash')}\n{line}"], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        (("wh",), {"why"}),
        (("why", "--rep"), {"--replay"}),
        (("queue", ""), {"inspect", "export", "--help", "-h"}),
        (("queue", "export", "--o"), {"--output"}),
        (("print-config", "--mode", ""), {"redacted", "unredacted"}),
        (("completion", "z"), {"zsh"}),
        (("why", "--for", ""), set()),
        (("unknown", ""), set()),
    ],
)
def test_bash_completes(words: tuple[str, ...], offered: set[str]) -> None:
    assert completed("otel-zernel", *words) == offered


def test_bash_completes_paths_where_an_option_takes_one() -> None:
    assert "README.md" in completed("otel-zernel", "why", "--replay", "READ")
