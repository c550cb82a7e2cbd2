"""The sentences for the problems that the child process reports."""

from collections.abc import Mapping, Sequence
from typing import Any

PACKAGE = "python3-bpfcc"
"""The package of Debian, Ubuntu, Fedora and RHEL that has BCC for the Python of the distribution."""


def problem_sentence(problem: Mapping[str, Any], python: str) -> str:
    """One problem in words."""
    detail = problem["detail"]
    match problem["kind"]:
        case "bcc":
            return (
                f"python: {python} has no package bcc ({detail}); install {PACKAGE}, or set `python` to an interpreter "
                "that has it"
            )
        case "capability":
            return "BCC needs the capability CAP_SYS_ADMIN; run the collector as root, or grant it this capability"
        case "headers":
            return (
                f"kernel_headers: there are no kernel headers for {detail}; install them (linux-headers-{detail}), or "
                "set `kernel_headers` to a folder that has others, if the programs read no structures of the kernel"
            )
        case "tracepoint":
            return (
                f"{problem['place']}: the description of the tracepoint {detail} cannot be read; run the collector as "
                "root, or grant it the capability CAP_DAC_READ_SEARCH, too"
            )
        case "compile":
            return f"{problem['place']}: the program does not compile:\n{detail}"
        case "verifier":
            reason, _, log = detail.partition("\n")
            return f"{problem['place']}: the kernel refuses the program ({reason}). Its verifier's last lines:\n{log}"
        case _:
            return f"{problem['place']}: {detail}"


def listed(path: str, sentences: Sequence[str]) -> str:
    """All problems of the receiver at this path, one a line."""
    return "\n".join(f"{path}{'::' if _has_key(sentence) else ': '}{sentence}" for sentence in sentences)


def _has_key(sentence: str) -> bool:
    """Whether the sentence begins with a key of the configuration."""
    return sentence.partition(" ")[0].endswith(":")
