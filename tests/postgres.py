"""A PostgreSQL server for tests: one for the whole session, each test with a schema of its own."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import psutil
import pytest

from tests.free_ports import free_port
from tests.left_processes import SERVERS

_PLACES: Final = sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
_USER: Final = "postgres"
PASSWORD: Final = "correct horse"  # of the user `tester`, who may connect over TCP


def program(name: str) -> str | None:
    """The path of a program of PostgreSQL."""
    return next((str(place / name) for place in _PLACES if (place / name).exists()), None) or shutil.which(name)


@dataclass
class PostgresServer:
    """A server with its data in a folder. Everybody may connect over the Unix socket, `tester` over TCP."""

    folder: Path
    port: int = field(default_factory=free_port)
    _process: "subprocess.Popen[bytes] | None" = None

    @property
    def data(self) -> Path:
        return self.folder / "data"

    def url(self, database: str = "postgres") -> str:
        """The URL over the Unix socket."""
        return f"postgresql://{_USER}@/{database}?host={self.folder}:{self.port}"

    def tcp_url(self, database: str = "postgres", user: str = "tester") -> str:
        return f"postgresql://{user}@127.0.0.1:{self.port}/{database}"

    def create(self) -> None:
        """Creates the data."""
        self._run("initdb", "--no-sync", "--auth=trust", "--encoding=UTF8", "--locale=C.UTF-8", "-D", str(self.data))
        (self.data / "pg_hba.conf").write_text("local all all trust\nhost all all all scram-sha-256\n")

    def start(self, *options: str) -> None:
        """Starts the server and returns when it accepts connections."""
        settings = [f"port={self.port}", f"unix_socket_directories={self.folder}", "listen_addresses=127.0.0.1"]
        settings += ["fsync=off", "shared_buffers=32MB", "max_connections=60", *options]
        words = [str(program("postgres")), "-D", str(self.data)]
        words += [word for setting in settings for word in ("-c", setting)]
        log = (self.folder / "log").open("ab")
        self._process = subprocess.Popen(words, stdout=log, stderr=log, user=_user(), cwd=self.folder)
        SERVERS.add(self._process.pid)
        log.close()
        self._run("pg_ctl", "-D", str(self.data), "-t", "120", "-w", "status", check=False)
        self.wait()

    def wait(self) -> None:
        """Returns when the server accepts connections."""
        ready = [str(program("pg_isready")), "-h", str(self.folder), "-p", str(self.port), "-t", "60", "-q"]
        for _ in range(600):
            if subprocess.run(ready, check=False).returncode == 0:
                return
            assert self._process
            assert self._process.poll() is None, (self.folder / "log").read_text("utf-8")[-2000:]
            subprocess.run(["sleep", "0.1"], check=True)
        raise TimeoutError("PostgreSQL did not start")

    def stop(self, signal: str = "fast") -> None:
        """`fast` ends all connections, `immediate` is a crash."""
        if self._process:
            self._run("pg_ctl", "-D", str(self.data), "-m", signal, "-w", "-t", "120", "stop", check=False)
            self._process.wait(120)
            self._process = None

    def kill(self) -> None:
        """Kills all processes of the server at once, by SIGKILL."""
        if self._process:
            processes = psutil.Process(self._process.pid)
            for child in (processes, *processes.children(recursive=True)):
                with suppress(psutil.NoSuchProcess):
                    child.kill()
            self._process.wait()
            self._process = None

    def sql(self, statements: str, database: str = "postgres") -> str:
        """What psql prints for the statements."""
        words = [str(program("psql")), "-h", str(self.folder), "-p", str(self.port), "-U", _USER, "-d", database]
        words += ["-AtqX", "-v", "ON_ERROR_STOP=1"]
        done = subprocess.run(words, input=statements.encode(), capture_output=True)
        assert done.returncode == 0, done.stderr.decode()
        return done.stdout.decode().strip()

    def _run(self, name: str, *words: str, check: bool = True) -> None:
        done = subprocess.run([str(program(name)), *words], capture_output=True, user=_user(), cwd=self.folder)
        assert not check or done.returncode == 0, done.stderr.decode()


def _user() -> str | None:
    """The server refuses to run as root."""
    return _USER if os.geteuid() == 0 else None


def skip_without_postgres() -> None:
    """Skips the test, unless REQUIRE_PEERS is set."""
    pytest.importorskip("asyncpg")
    if not program("postgres") and os.environ.get("REQUIRE_PEERS") != "1":
        pytest.skip("needs PostgreSQL: apt-get install postgresql")


@contextmanager
def postgres_server(*options: str) -> Iterator[PostgresServer]:
    """A new server that ends with the block."""
    skip_without_postgres()
    folder = Path(tempfile.mkdtemp(prefix="pg"))  # a path of a Unix socket has 107 characters at most
    folder.chmod(0o755)
    if os.geteuid() == 0:
        shutil.chown(folder, _USER)
    server = PostgresServer(folder)
    try:
        server.create()
        server.start(*options)
        server.sql(f"CREATE ROLE tester LOGIN PASSWORD '{PASSWORD}'; GRANT CREATE ON DATABASE postgres TO tester")
        yield server
    finally:
        server.stop("immediate")
        shutil.rmtree(folder, ignore_errors=True)


_numbers = iter(range(1 << 30))


def new_schema() -> str:
    """The name of a schema that no other test uses."""
    return f"test_{os.getpid()}_{next(_numbers)}"
