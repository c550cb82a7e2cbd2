"""Where the time of threads goes that do not run."""

from otel_zernel.batch import Batch
from otel_zernel_receivers.ebpf.watch import Watch
from tests.receivers.ebpf.standin import Program, Standin
from tests.receivers.ebpf.watching import doubles, histogram_points, numbers

WAIT_NS = 30_000_000


def waited(watch: Watch, standin: Standin) -> tuple[Batch, Program]:
    with standin.start() as program:
        program.do("load libcudart.so.12")
        watch.attach()
        program.do("cudaLaunchKernel")
        watch.read()
        watch.taken()
        program.do(f"cudaLaunchKernel work={WAIT_NS}")
        program.do("cudaDeviceSynchronize")
        return watch.read(), program


def test_a_sleep_on_a_futex_is_a_distributed_sync_wait(watch: Watch, standin: Standin) -> None:
    batch, program = waited(watch, standin)
    (point,) = histogram_points(batch, "zernel.distributed.sync.wait", process_pid=program.pid)
    (sync,) = histogram_points(batch, "zernel.cuda.sync.wait", process_pid=program.pid)
    assert WAIT_NS / 2e9 < point.sum <= sync.sum


def test_time_off_the_cpu_and_bursts_on_it_are_told(watch: Watch, standin: Standin) -> None:
    batch, program = waited(watch, standin)
    (off_cpu,) = doubles(batch, "zernel.process.off_cpu", process_pid=program.pid)
    (io_wait,) = doubles(batch, "zernel.process.io.wait", process_pid=program.pid)
    (burst,) = doubles(batch, "zernel.process.cpu.burst", process_pid=program.pid)
    assert off_cpu > WAIT_NS / 2e9
    assert 0 <= io_wait <= off_cpu
    assert burst > 0


def test_reads_of_more_than_a_page_are_counted(watch: Watch, standin: Standin) -> None:
    with standin.start() as program:
        program.do("load libcudart.so.12")
        watch.attach()
        program.do("cudaLaunchKernel")
        program.do("read size=65536 times=5")
        program.do("read size=4096 times=50")
        batch = watch.read()
    assert numbers(batch, "zernel.process.read.count", process_pid=program.pid) == [10]
    assert numbers(batch, "zernel.process.read.size", process_pid=program.pid) == [10 * 65536]
