"""Processes of other pid namespaces in the real /proc."""

import os
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Sequence
from pathlib import Path

import pytest

from otel_zernel_receivers.ebpf.processes.pid_namespace import PidNamespace
from tests.receivers.ebpf.standin import Standin

ROOT = Path(__file__).parents[4]

pytestmark = pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="there is no Linux /proc")


def allowed(*command: str) -> bool:
    """Whether a privileged command works here."""
    return bool(shutil.which(command[0])) and not subprocess.run(command, capture_output=True, check=False).returncode


needs_pid_namespaces = pytest.mark.skipif(
    not allowed("unshare", "-p", "-f", "true"), reason="pid namespaces need CAP_SYS_ADMIN"
)


def inside(wrapper: Sequence[str], code: str) -> list[str]:
    """The words that Python code prints in another namespace, in which /proc is still that of this namespace."""
    prelude = """
        import os, sys
        from pathlib import Path
        from otel_zernel_receivers.ebpf.processes.pid_namespace import PidNamespace
        namespace = PidNamespace(Path("/proc"))
        outer = int(os.readlink("/proc/self"))
    """
    command = [*wrapper, sys.executable, "-c", textwrap.dedent(prelude) + textwrap.dedent(code)]
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT}/libraries:{ROOT}/receivers"}
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout.split()


def test_pids_of_the_collector_s_own_proc_are_not_translated() -> None:
    assert PidNamespace(Path("/proc")).pid_of(os.getpid()) == os.getpid()


@needs_pid_namespaces
def test_pids_of_a_foreign_proc_are_translated() -> None:
    code = f"""
        child = os.fork()
        if not child:
            os.execvp("sleep", ["sleep", "1000"])
        children = Path(f"/proc/{{outer}}/task/{{outer}}/children").read_text().split()
        print(os.getpid(), namespace.pid_of(outer), child, namespace.pid_of(int(children[0])))
        print(outer != os.getpid(), namespace.pid_of({os.getpid()}))
        os.kill(child, 9)
    """
    own, translated, child, translated_child, differs, outside = inside(["unshare", "-p", "-f"], code)
    assert (own, child) == (translated, translated_child)
    assert (differs, outside) == ("True", "None")


@needs_pid_namespaces
def test_a_process_in_a_lower_namespace_has_a_pid_here_and_one_in_a_sibling_has_none() -> None:
    code = """
        import subprocess
        below = subprocess.Popen(["unshare", "-p", "-f", "--kill-child", "sleep", "1000"])
        def children(pid):
            return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
        while not children(outer) or not (sleeping := children(children(outer)[0])):
            os.sched_yield()
        deepest = Path(f"/proc/{sleeping[0]}/status").read_text()
        nspid = next(line for line in deepest.splitlines() if line.startswith("NSpid")).split()
        print(len(nspid), nspid[2], namespace.pid_of(sleeping[0]))
        below.kill()
        below.wait()
    """
    count, expected, translated = inside(["unshare", "-p", "-f"], code)
    assert count == "4", "its name and three pids"
    assert expected == translated


@needs_pid_namespaces
def test_a_process_that_kernel_programs_cannot_identify_is_skipped_and_counted(standin: Standin) -> None:
    use = f"import ctypes; ctypes.CDLL({str(standin.cudart)!r}); print(1, flush=True); input()"
    code = f"""
        import subprocess
        from otel_zernel_receivers.ebpf.processes.scanner import Scanner, Selection
        def skipped(*wrapper):
            command = [*wrapper, sys.executable, "-c", {use!r}]
            pipes = dict(stdin=subprocess.PIPE, stdout=subprocess.PIPE, env={{**os.environ, "NAMED": "no"}})
            with subprocess.Popen(command, **pipes) as process:
                process.stdout.readline()
                scan = Scanner(selection=Selection(environment={{"NAMED": "no"}})).scan()
            print(len(scan.processes), "below_pid_namespace" in scan.skipped)
        skipped()
        skipped("unshare", "-p", "-f", "--kill-child")
    """
    identified = inside(["unshare", "-p", "-f", "--mount-proc"], code)
    assert identified == ["1", "False", "0", "True"]
    assert inside([], code) == ["1", "False", "1", "False"], "the initial namespace can identify all processes"
