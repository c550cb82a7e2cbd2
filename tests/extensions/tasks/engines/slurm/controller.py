"""A slurmrestd for tests, with the layouts of v0.0.40 (Slurm 23.11). The test is the scheduler and the nodes."""

import json
from collections import Counter
from typing import Any

from tests.libraries.clients.kubernetes.cluster import body_of, send_json

Json = dict[str, Any]
VERSION = "v0.0.40"


def number(value: int | None) -> Json:
    return {"set": value is not None, "infinite": False, "number": value or 0}


class FakeSlurm:
    """An ASGI application, and the hands of the cluster behind it."""

    def __init__(self) -> None:
        self.jobs: dict[int, Json] = {}
        self.accounting: dict[int, Json] = {}
        self.submitted: list[Json] = []
        self.requests: Counter[str] = Counter()
        self.token = "t0p"
        self.refusal: tuple[int, int, str] | None = None
        """Status, number and text of the error that answers every request."""
        self.database_refusal: tuple[int, int, str] | None = None
        """The same for requests to slurmdbd."""
        self.lose_answer = False
        """The next submission is done, and its connection is cut before the answer."""

    def set_state(self, id_: int, *states: str, code: int | None = None, signal: int | None = None) -> None:
        exit_code = {"status": ["PENDING"], "return_code": number(code), "signal": {"id": number(signal), "name": ""}}
        self.jobs[id_] |= {"job_state": list(states), "exit_code": exit_code, "start_time": number(100)}
        self.jobs[id_]["end_time"] = number(160)

    def forget(self, id_: int, *, into_accounting: bool = False) -> None:
        """As slurmctld does after MinJobAge."""
        job = self.jobs.pop(id_)
        if into_accounting:
            state = {"current": job["job_state"], "reason": "None"}
            time = {"start": 100, "end": 160}
            self.accounting[id_] = {"job_id": id_, "name": job["name"], "state": state, "time": time} | {
                "exit_code": job["exit_code"]
            }

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        body = await body_of(receive)
        method, path = scope["method"], scope["path"]
        headers = {name.decode(): value.decode() for name, value in scope["headers"]}
        self.requests[f"{method} {path}"] += 1
        if headers.get("x-slurm-user-token") != self.token:
            return await send_json(send, 401, {"errors": [{"description": "Authentication failure"}]})
        if refusal := self.refusal or (self.database_refusal if path.startswith("/slurmdb/") else None):
            status, error, text = refusal
            return await send_json(send, status, {"errors": [{"error_number": error, "description": text}], "jobs": []})
        answer = self._answer(method, path, json.loads(body) if body else {})
        if method == "POST" and self.lose_answer:
            self.lose_answer = False
            await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"10")]})
            raise ConnectionError("the answer is lost")
        return await send_json(send, *answer)

    def _answer(self, method: str, path: str, body: Json) -> tuple[int, Json]:
        name, last = path.rpartition(f"/{VERSION}/")[::2]
        if name == "/slurmdb":
            job = self.accounting.get(int(last.rpartition("/")[2]))
            return 200, {"jobs": [job] if job else [], "errors": []}
        if (method, last) == ("POST", "job/submit"):
            return self._submit(body["job"])
        if last == "jobs":
            return 200, {"jobs": list(self.jobs.values()), "errors": []}
        if method == "DELETE" and last.startswith("job/"):
            return self._cancel(int(last[4:]))
        return 404, {"errors": [{"description": "Unable find requested URL"}]}

    def _submit(self, job: Json) -> tuple[int, Json]:
        self.submitted.append(job)
        id_ = 100 + len(self.submitted)
        self.jobs[id_] = {"job_id": id_, "name": job["name"], "state_reason": "Priority"}
        self.set_state(id_, "PENDING")
        self.jobs[id_] |= {"start_time": number(None), "end_time": number(None)}
        return 200, {"job_id": id_, "step_id": "batch", "errors": []}

    def _cancel(self, id_: int) -> tuple[int, Json]:
        if id_ not in self.jobs:
            return 500, {"errors": [{"error_number": 2017, "description": "Invalid job id specified"}]}
        if self.jobs[id_]["job_state"][0] in ("PENDING", "RUNNING"):
            self.set_state(id_, "CANCELLED", code=0, signal=15)
        return 200, {"errors": []}
