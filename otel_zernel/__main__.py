"""The command `otel-zernel`, also `python -m otel_zernel`."""

import os
import signal
import sys


def main() -> int:
    """Runs the command line. A SIGHUP that arrives before the collector handles it waits, and then reloads."""
    if sys.argv[1:2] == ["run"] or (sys.argv[1:2] and sys.argv[1].startswith(("--config", "--set"))):
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGHUP})
    _raise_capabilities()
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")  # the search for them reads all packages' metadata
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # numpy starts threads for linear algebra, which is not used
    try:
        from otel_zernel.runtime.garbage import collection_deferred

        with collection_deferred():  # modules and classes are no garbage
            from otel_zernel.cli import main as run_command  # imports much, which takes time

        return run_command()
    except KeyboardInterrupt:  # before the collector handles Ctrl-C, or in another command
        return 128 + signal.SIGINT


def _raise_capabilities() -> None:
    """Only an image gives its program a file capability. Otherwise this costs no import."""
    if sys.platform != "linux":
        return
    try:
        attributes = os.listxattr(sys.executable)
    except OSError:  # the user may run the program without the right to look at its path
        return
    if "security.capability" in attributes:
        from otel_zernel.runtime.capabilities import raise_permitted

        raise_permitted()


if __name__ == "__main__":
    sys.exit(main())
