"""The kernel features that each variant needs, read from the committed objects and compared with kernel_features.tsv.

The table proves that a kernel has every feature that an object uses. It does not prove that an old verifier accepts the
code: only a run does.
"""

import re
from pathlib import Path
from typing import NamedTuple

import pytest

from otel_zernel_receivers.ebpf.kernel import libbpf_calls, versions
from otel_zernel_receivers.ebpf.kernel.versions import Version
from otel_zernel_receivers.ebpf.probes import loading
from otel_zernel_receivers.ebpf.probes.attach_modes import Mode
from tests.receivers.ebpf.kernel.bpf_object import BpfObject, given_to_map
from tests.receivers.ebpf.kernel.instructions import Feature, Function, Instruction
from tests.receivers.ebpf.kernel.test_objects import FOLDER, each_object, object_at

README = Path(versions.__file__).parents[1] / "README.md"
TABLE = Path(__file__).with_name("kernel_features.tsv")
PROGRAM_SECTIONS = {"uprobe", "uretprobe", "raw_tp", "tp_btf", "perf_event"}
LIBBPF: Version = (1, 0)
"""The oldest version whose file is libbpf.so.1."""


class Row(NamedTuple):
    """One row of the table."""

    since: dict[str, Version]
    programs: set[str]
    source: str


def numbers(text: str) -> Version:
    return tuple(map(int, text.split(".")))


def parsed(line: str) -> tuple[Feature, Row]:
    kind, name, x86, arm, programs, _, source = line.split("\t")
    since = {"x86_64": numbers(x86), "aarch64": numbers(arm)}
    return Feature(kind, name), Row(since, PROGRAM_SECTIONS if programs == "all" else set(programs.split(",")), source)


FEATURES = dict(parsed(line) for line in TABLE.read_text().splitlines() if not line.startswith("#"))


def object_of(architecture: str, variant: str) -> BpfObject:
    return object_at(FOLDER / architecture / f"{variant}.bpf.o")


def first_linux(architecture: str, mode: Mode, variant: str, programs: set[str]) -> Version:
    """The first Linux that has the attach mode and every feature that these programs use."""
    bpf = object_of(architecture, variant)
    used = {Feature("attach", mode)}.union(*(bpf.features(program) for program in programs))
    return max(FEATURES[feature].since[architecture] for feature in used)


OPTIONAL = set(loading._OMITTED[-1])
"""Programs that the loader leaves out in its last trial."""


def required(architecture: str, variant: str) -> set[str]:
    return set(object_of(architecture, variant).programs) - OPTIONAL


@each_object
def test_every_feature_of_an_object_is_in_the_table(path: Path) -> None:
    bpf = object_at(path)
    used = set().union(*(bpf.features(program) for program in bpf.programs))
    assert not used - set(FEATURES), "find the first Linux that has it, and add a row with the source"


@each_object
def test_programs_only_call_helpers_that_their_type_permits(path: Path) -> None:
    bpf = object_at(path)
    for name, program in bpf.programs.items():
        for feature in bpf.features(name):
            row = FEATURES[feature]
            if feature.kind in {"helper", "kfunc"}:
                assert program.section.split("/")[0] in row.programs, f"{feature} in {name}"


def test_every_row_names_its_source() -> None:
    assert not [feature for feature, row in FEATURES.items() if len(row.source) < len("commit 0123456")]


@pytest.mark.parametrize("architecture", ["x86_64", "aarch64"])
def test_the_documented_first_linux_of_each_mode_is_right(architecture: str) -> None:
    def first(mode: Mode, variant: str) -> Version:
        return first_linux(architecture, mode, variant, required(architecture, variant))

    assert first(Mode.PERF, "classic") == versions.OLDEST[architecture]
    assert first(Mode.MULTI, "classic") == versions.UNPRIVILEGED
    assert first(Mode.SESSION, "session") == versions.CHEAPEST
    assert first(Mode.SESSION, "session_ctx") == versions.SESSION_CONTEXT


@pytest.mark.parametrize("architecture", ["x86_64", "aarch64"])
def test_the_oldest_linux_supports_every_program(architecture: str) -> None:
    switches = {name for name in OPTIONAL if "sched_switch" in name}
    others = set(object_of(architecture, "classic").programs) - switches
    firsts = [first_linux(architecture, Mode.PERF, "classic", others | {switch}) for switch in switches]
    assert versions.OLDEST[architecture] in firsts


def test_libbpf_1_0_has_every_function_that_is_used() -> None:
    for name in libbpf_calls._SIGNATURES:
        assert FEATURES[Feature("libbpf", name)].since["x86_64"] <= LIBBPF, name


def test_batch_commands_are_older_than_the_oldest_linux() -> None:
    commands = [row for feature, row in FEATURES.items() if feature.kind == "command"]
    assert max(row.since["x86_64"] for row in commands) < versions.OLDEST["x86_64"]
    called = {name for name in libbpf_calls._SIGNATURES if name.endswith("_batch")}
    assert {Feature("command", name) for name in called} <= set(FEATURES)


def code(*instructions: tuple[int, int, int, int]) -> Function:
    """A function of `code, destination and source, offset, immediate`."""
    return Function("of_test", ".text", [Instruction(*instruction) for instruction in instructions], {})


SAVE = (0xBF, 0x16, 0, 0)  # r6 = r1
SPILL, RESTORE = (0x7B, 0x1A, -8, 0), (0x79, 0xA2, -8, 0)  # *(r10 - 8) = r1; r2 = *(r10 - 8)
MEMBER = (0x07, 0x02, 0, 8)  # r2 += 8
LOOKUP, OTHER = (0x85, 0, 0, 1), (0x85, 0, 0, 5)


@pytest.mark.parametrize(
    ("function", "is_key"),
    [
        (code((0xBF, 0x12, 0, 0), LOOKUP), True),  # r2 = r1
        (code(SAVE, OTHER, (0xBF, 0x62, 0, 0), MEMBER, LOOKUP), True),
        (code(SPILL, OTHER, RESTORE, LOOKUP), True),
        (code(SAVE, OTHER, (0x79, 0x62, 0, 0), LOOKUP), False),  # r2 = *r6: the value, not the pointer
        (code((0xBF, 0xA2, 0, 0), (0x07, 0x02, 0, -4), LOOKUP), False),  # its own stack
        (code((0xBF, 0x12, 0, 0), OTHER, LOOKUP), False),  # a call forgets r2
        (code((0xBF, 0x12, 0, 0), OTHER), False),
        (code((0xBF, 0x13, 0, 0), (0x85, 0, 0, 2)), True),  # a value: argument 3 of bpf_map_update_elem
        (code((0xBF, 0x13, 0, 0), LOOKUP), False),
    ],
)
def test_a_key_in_memory_of_the_caller_is_detected(function: Function, is_key: bool) -> None:
    assert given_to_map(function, {1}) == is_key


def test_a_key_in_a_record_of_a_ring_buffer_is_detected() -> None:
    reserve, key = (0x85, 0, 0, 131), (0xBF, 0x02, 0, 0)  # r2 = r0
    assert given_to_map(code(reserve, key, LOOKUP), set(), from_ring=True)
    assert not given_to_map(code(OTHER, key, LOOKUP), set(), from_ring=True)


MATRIX = re.compile(
    r"^\| (?P<system>[^|]+) \| (?P<kernel>[\d.]+)(?: \(eBPF of (?P<ebpf>[\d.]+)\))? \|(?P<cells>.*)\|$", re.MULTILINE
)


class Distribution(NamedTuple):
    """One row of the README's matrix."""

    system: str
    """The distribution, with `arm64` if the row is for that processor."""
    kernel: Version
    ebpf: Version
    """The upstream version of the kernel's eBPF, which is newer than `kernel` if it was backported."""
    libbpf: str
    mode: str
    proof: str

    @property
    def architecture(self) -> str:
        return "aarch64" if "arm64" in self.system else "x86_64"


def matrix() -> list[Distribution]:
    """The rows of the README's matrix of distributions."""
    rows = MATRIX.finditer(README.read_text())
    return [
        Distribution(
            row["system"],
            numbers(row["kernel"]),
            numbers(row["ebpf"] or row["kernel"]),
            *(cell.strip() for cell in row["cells"].split("|")),
        )
        for row in rows
    ]


def best(architecture: str, kernel: Version) -> str:
    """The best attach mode that the table proves for a kernel; `none` if it is too old."""
    variants = (
        (Mode.SESSION, "session_ctx"),
        (Mode.SESSION, "session"),
        (Mode.MULTI, "classic"),
        (Mode.PERF, "classic"),
    )
    modes = (
        mode.value
        for mode, variant in variants
        if kernel >= first_linux(architecture, mode, variant, required(architecture, variant))
    )
    return next(modes, "none")


BACKPORTED = [row for row in matrix() if row.ebpf != row.kernel]
OUTSIDE_EBPF = {"field", "tracepoint", "types"}
"""Kinds of features that other parts of the kernel have."""


@pytest.mark.parametrize("row", matrix(), ids=lambda row: row.system)
def test_the_matrix_of_distributions_agrees_with_the_table(row: Distribution) -> None:
    assert row.mode == best(row.architecture, row.ebpf)
    proofs = {"by the table", "ran"} if row.ebpf == row.kernel else {"by the release notes and the table"}
    assert row.proof in proofs


@pytest.mark.parametrize("row", BACKPORTED, ids=lambda row: row.system)
def test_a_kernel_with_backports_has_the_features_outside_ebpf(row: Distribution) -> None:
    def missing(program: str) -> list[Feature]:
        used = object_of(row.architecture, "classic").features(program)
        outside = [feature for feature in used if feature.kind in OUTSIDE_EBPF]
        return [feature for feature in outside if FEATURES[feature].since[row.architecture] > row.kernel]

    switches = {name for name in OPTIONAL if "sched_switch" in name}
    others = set(object_of(row.architecture, "classic").programs) - switches
    assert {program: missing(program) for program in others if missing(program)} == {}
    assert not all(missing(switch) for switch in switches), "one program for the scheduler must load"


def test_the_matrix_has_both_processors_and_a_kernel_with_backports() -> None:
    assert {row.architecture for row in matrix()} == {"x86_64", "aarch64"}
    assert BACKPORTED


@each_object
def test_no_program_of_uprobes_gets_a_private_stack(path: Path) -> None:
    """Uprobes can be preempted, which would overwrite a private stack per CPU. A tail call prevents private stacks."""
    bpf = object_at(path)
    probes = [name for name, program in bpf.programs.items() if name.startswith("probe")]
    assert probes
    for name in probes:
        assert ("helper", "12") in {(feature.kind, feature.name) for feature in bpf.features(name)}, name
