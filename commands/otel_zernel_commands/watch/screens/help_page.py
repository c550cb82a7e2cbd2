"""The page that explains the keys and the letters."""

from otel_zernel_commands.watch.styled import StyledLine, Surface
from otel_zernel_libraries.training import PHASE_WORDS

_KEYS = (
    ("q, Ctrl-C", "quit"),
    ("? or h", "this help"),
    ("arrows, j k", "choose a process; PgUp, PgDn, Home, End"),
    ("Enter", "the job, or the process, in detail; Esc goes back"),
    ("s and r", "next column to sort by; reverse it"),
    ("S and R", "the same for the second column, for equal values"),
    ("/", "filter by rank, pid, job, host, phase or verdict; Esc clears it"),
    ("space", "freeze the screen"),
    ("g", "processes and GPUs, processes only, GPUs only"),
    ("+ and -", "longer or shorter time between updates"),
)
_COLUMNS = (
    ("P50, P99", "median and 99th percentile of the step times of the last minute"),
    ("LAST STEPS", "where the time of the last 10 steps went; without steps, of the last minute"),
    ("LATE", "how much later than the first rank it reaches collectives in a step"),
    ("COLL", "duration of its collectives (NCCL)"),
    ("LAUNCH", "latency of CUDA kernel launches"),
    ("BUSY, SM", "time with a running kernel; share of the SMs at work"),
)


def help_lines(surface: Surface) -> list[StyledLine]:
    """Keys, letters of phases, columns."""
    lines: list[StyledLine] = [(("Keys", "heading"),)]
    lines += [_pair(key, text, surface) for key, text in _KEYS]
    lines += [((" ", ""),), (("Phases: letter in bars, word in the table", "heading"),)]
    for phase, words in PHASE_WORDS.items():
        short = f" {words.short:<8}"
        lines.append(((" ", ""), (f" {words.letter} ", f"on_{phase}"), (short, phase), (words.name, "")))
    lines += [((" ", ""),), (("Columns", "heading"),)]
    lines += [_pair(title, text, surface) for title, text in _COLUMNS]
    return lines


def _pair(key: str, text: str, surface: Surface) -> StyledLine:
    return ((f" {key:<12} ", "bold"), (surface.cut(text, max(surface.columns - 14, 0)), ""))
