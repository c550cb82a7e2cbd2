"""A training job that is slow in known lines, and says which.

    python planted_job.py CUDART

Twice it trains a step, says `training` and waits for a line of its input. Each further line names a plant and a
position in the loop: `sleep forward`. It trains some steps with it, and says the file, the function and the line of the
plant with the seconds that it took: of the CPU, or of waiting.
"""

import copy
import ctypes
import hashlib
import http.client
import http.server
import importlib
import inspect
import io
import json
import logging
import sqlite3
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

STEPS, PLANTED = 3, 0.12
"""Seconds a step."""
WORKER = {"worker": "fork", "spawned": "spawn"}
"""How the worker of a DataLoader starts, at the positions in it."""
cudart = ctypes.CDLL(sys.argv[1])
torch.set_num_threads(1)


class Dim(ctypes.Structure):
    _fields_ = (("x", ctypes.c_uint), ("y", ctypes.c_uint), ("z", ctypes.c_uint))


class Slow(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        time.sleep(PLANTED)
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


def module(name: str) -> Any:
    """A module that may be missing."""
    try:
        return importlib.import_module(name)
    except ImportError:
        return None


IMAGES, TABLES, TOKENIZERS = module("PIL.Image"), module("pandas"), module("tokenizers")
if IMAGES:
    IMAGE = IMAGES.fromarray(np.zeros((800, 800, 3), np.uint8))
if TABLES:
    TABLE = TABLES.DataFrame({"value": np.random.default_rng(7).random(200_000)})
if TOKENIZERS:
    TOKENIZER = TOKENIZERS.Tokenizer(TOKENIZERS.models.WordLevel({"word": 0}, unk_token="word"))
    TOKENIZER.pre_tokenizer = TOKENIZERS.pre_tokenizers.Whitespace()
TEXT = "some words of a text " * 2000
NUMBERS = np.random.default_rng(7).random(100_000)
DATABASE = sqlite3.connect(":memory:", check_same_thread=False)
QUERY = "with recursive n(i) as (select 1 union all select i + 1 from n where i < 20000) select sum(i) from n"
LOCK = threading.Lock()
LOGGER = logging.Logger("planted")
LOGGER.addHandler(logging.StreamHandler(io.StringIO()))
STATE = {str(number): [number] * 10 for number in range(500)}
DATA = b"x" * 2_000_000
POOL = ThreadPoolExecutor(1)
SERVER = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Slow)
threading.Thread(target=SERVER.serve_forever, daemon=True).start()


def pure_python(end: float) -> None:
    while time.thread_time() < end:
        sum(number * number for number in range(5000))  # PLANTED


def numpy(end: float) -> None:
    while time.thread_time() < end:
        np.sort(NUMBERS)  # PLANTED


def sqlite(end: float) -> None:
    while time.thread_time() < end:
        DATABASE.execute(QUERY).fetchone()  # PLANTED


def json_logging(end: float) -> None:
    while time.thread_time() < end:
        LOGGER.info(json.dumps(STATE))  # PLANTED


def deep_copy(end: float) -> None:
    while time.thread_time() < end:
        copy.deepcopy(STATE)  # PLANTED


def native(end: float) -> None:
    while time.thread_time() < end:
        hashlib.sha256(DATA).digest()  # PLANTED


def pil(end: float) -> None:
    while time.thread_time() < end:
        IMAGE.resize((500, 500))  # PLANTED


def pandas(end: float) -> None:
    while time.thread_time() < end:
        TABLE.sort_values("value")  # PLANTED


def tokenizer(end: float) -> None:
    while time.thread_time() < end:
        TOKENIZER.encode(TEXT)  # PLANTED


def sleep(_: float) -> None:
    time.sleep(PLANTED)  # PLANTED


def lock(_: float) -> None:
    held = threading.Event()

    def hold() -> None:
        with LOCK:
            held.set()
            time.sleep(PLANTED)

    threading.Thread(target=hold).start()
    held.wait()
    with LOCK:  # PLANTED
        pass


def item(_: float) -> None:
    """The host waits for the device, as `.item()` does."""
    work = ctypes.c_uint64(int(PLANTED * 1e9))
    arguments = (ctypes.c_void_p * 1)(ctypes.addressof(work))
    one = Dim(1, 1, 1)
    cudart.cudaLaunchKernel(ctypes.c_void_p(1), one, one, arguments, ctypes.c_size_t(0), None)
    cudart.cudaDeviceSynchronize()  # PLANTED


def request(_: float) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", SERVER.server_port)
    connection.request("GET", "/")
    connection.getresponse().read()  # PLANTED
    connection.close()


WAITS = (sleep, lock, item, request)
OPTIONAL = {"pil": IMAGES, "pandas": TABLES, "tokenizer": TOKENIZERS}
PLANTS: dict[str, Callable[[float], None]] = {
    plant.__name__: plant
    for plant in (pure_python, numpy, sqlite, json_logging, deep_copy, native, pil, pandas, tokenizer, *WAITS)
}


class Planted:
    """The plant of the current line, and the seconds that it has taken."""

    plant: Callable[[float], None] | None = None
    position = ""
    seconds = 0.0


def at(position: str) -> None:
    if Planted.plant and Planted.position == position:
        clock = time.monotonic if Planted.plant in WAITS else time.thread_time
        began = clock()
        Planted.plant(time.thread_time() + PLANTED)
        Planted.seconds += clock() - began


class Samples(Dataset[torch.Tensor]):  # type: ignore[misc]
    def __init__(self) -> None:
        self.plant, self.position = Planted.plant, Planted.position  # a worker that is spawned gets them so

    def __len__(self) -> int:
        return STEPS

    def __getitem__(self, index: int) -> torch.Tensor:
        at("load")
        if torch.utils.data.get_worker_info():
            Planted.plant, Planted.position = self.plant, self.position
            for position in WORKER:
                at(position)
        return torch.randn(64)


class Model(torch.nn.Module):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(64, 1)

    def forward(self, batch: torch.Tensor) -> torch.Tensor:
        at("forward")
        output: torch.Tensor = self.layer(batch)
        output.register_hook(lambda _: at("backward"))
        return output


model = Model()
optimizer = torch.optim.SGD(model.parameters(), 1e-3)
optimizer.register_step_post_hook(lambda *_: at("optimizer"))


def wait_for_the_receiver(_: int) -> None:
    time.sleep(1)  # it finds workers with its next reading, or with its next scan


def batches(position: str) -> Iterator[torch.Tensor]:
    options = {"num_workers": 1, "multiprocessing_context": WORKER[position]} if position in WORKER else {}
    yield from DataLoader(Samples(), batch_size=1, worker_init_fn=wait_for_the_receiver, **options)


def train(position: str = "") -> None:
    for batch in batches(position):
        loss = model(batch).sum()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        at("between")
        if position == "pool":
            POOL.submit(at, "pool").result()


def say(content: Any) -> str:
    sys.stdout.write(f"{content}\n")
    sys.stdout.flush()
    return sys.stdin.readline()


def main() -> None:
    for _ in range(2):
        train()
        cudart.cudaDeviceSynchronize()
        line = say("training")
    while len(words := line.split()) == 2:
        if not OPTIONAL.get(words[0], True):
            line = say("null")
            continue
        plant = PLANTS[words[0]]
        Planted.plant, Planted.position, Planted.seconds = plant, words[1], 0.0
        POOL.submit(int).result()
        train(Planted.position)
        lines, first = inspect.getsourcelines(plant)
        number = first + next(place for place, text in enumerate(lines) if "# PLANTED" in text)
        seconds = STEPS * PLANTED if Planted.position in WORKER else Planted.seconds
        Planted.plant = None
        line = say(json.dumps([__file__, plant.__qualname__, number, seconds]))


if __name__ == "__main__":  # a worker that is spawned imports this file
    main()
