"""The tasks extension in a process that is killed again and again, and the check of what it has kept.

`python -m tests.extensions.tasks.killed_often FOLDER KILLS SEED`. Each life is a fork of this process, so that 15 kills
take a few seconds: no interpreter starts in between.
"""

import asyncio
import os
import random
import signal
import sys
import time
from pathlib import Path
from typing import Any

from tests.extensions.tasks.running import SH, TaskClient, running


class Life:
    """The requests of one life. Tasks have known exit codes; each appends its id to a file when it runs."""

    def __init__(self, folder: Path, number: int, name: str) -> None:
        self._folder = folder
        self._number = number
        self._name = name

    async def until_killed(self) -> None:
        """Posts three new tasks and cancels one, while others of earlier lives start, run and end."""
        async with running(self._folder / "tasks", max_running=6) as client:
            new = [*range(3 * self._number, 3 * self._number + 3)]
            for task in new:
                await asyncio.gather(*(self._posted(client, task) for _ in range(2)))  # two clients race
            cancelled = new[0]
            self._note("cancelled", cancelled)
            await client.delete(self.id(cancelled))
            await asyncio.Event().wait()

    async def last(self, count: int) -> dict[int, dict[str, Any]]:
        """Repeats all requests, waits until every task has ended, and returns them."""
        async with running(self._folder / "tasks", max_running=6) as client:
            for task in range(count):
                await self._posted(client, task)
            return {task: await client.end(self.id(task)) for task in range(count)}

    def id(self, task: int) -> str:
        return f"{self._name}-{task}"

    async def _posted(self, client: TaskClient, task: int) -> None:
        script = f"echo {task} >> {self._folder}/ran; sleep {task % 5 / 20}; exit {code_of(task)}"
        while (answer := await client.post(id=self.id(task), command=[*SH, script])).status == 503:  # noqa: ASYNC110  # a server has no event
            await asyncio.sleep(0.1)  # the disk is busy
        assert answer.status in (200, 201), answer.body

    def _note(self, file: str, task: int) -> None:
        with (self._folder / file).open("a") as notes:
            notes.write(f"{task}\n")


def code_of(task: int) -> int:
    return (0, 0, 1, 77)[task % 4]


def noted(path: Path) -> list[int]:
    return [int(line) for line in path.read_text().split()] if path.exists() else []


def mistakes(folder: Path, tasks: dict[int, dict[str, Any]]) -> list[str]:
    """A sentence for each promise that was broken."""
    ran, cancelled = noted(folder / "ran"), {*noted(folder / "cancelled")}
    found = [f"task {task} has run {ran.count(task)} times" for task in {*ran} if ran.count(task) > 1]
    for number, task in tasks.items():
        code = code_of(number)
        has_result = (task["status"], task.get("exit_code")) == ("failed" if code else "succeeded", code)
        if not has_result and not (number in cancelled and task["status"] == "cancelled"):
            found.append(f"task {number} is {task}, not ended with {code}")
        if number not in ran and number not in cancelled:
            found.append(f"task {number} has not run")
        if number in ran and task["status"] == "cancelled" and "started" not in task:
            found.append(f"task {number} was cancelled while it was queued, and has run")
    return found


def main(folder: Path, kills: int, seed: int) -> int:
    moments = random.Random(seed)
    name = f"often{os.getpid()}"
    for number in range(kills):
        child = os.fork()
        if child == 0:
            asyncio.run(Life(folder, number, name).until_killed())
        time.sleep(moments.random() * 0.3)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    tasks = asyncio.run(Life(folder, kills, name).last(3 * kills))
    found = mistakes(folder, tasks)
    counts = {status: sum(task["status"] == status for task in tasks.values()) for status in ("cancelled", "lost")}
    sys.stdout.write(f"{len(tasks)} tasks, {len(noted(folder / 'ran'))} runs, {counts}\n" + "\n".join(found))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])))
