"""Tasks as Jobs, against an API server in this process, over real HTTP."""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from otel_zernel.clock import SystemClock
from otel_zernel.errors import CannotStart, NoAnswer
from otel_zernel.testing import ImpatientClock, make_context, until
from otel_zernel_extensions.tasks.engines.engine import LogsGone, Observed, TaskLimits, TaskRejected, TaskSpec
from otel_zernel_extensions.tasks.engines.kubernetes import KubernetesConfig, KubernetesEngine
from tests.libraries.clients.kubernetes.cluster import FakeCluster
from tests.libraries.clients.kubernetes.kubeconfig import write_kubeconfig
from tests.libraries.clients.serving import served

TASK = TaskSpec("t1", ("python", "train.py", "--lr=$(LR) $HOME"), "resnet", {"LR": "0.1", "COST": "$5"})
NAME = "zernel-t1"
Connect = Callable[..., AbstractAsyncContextManager[KubernetesEngine]]


@pytest.fixture
async def cluster() -> FakeCluster:
    return FakeCluster()


@pytest.fixture
async def connect(cluster: FakeCluster, tmp_path: Path) -> AsyncIterator[Connect]:
    """Opens an engine on the cluster. A second one is the collector after a restart."""

    @asynccontextmanager
    async def opened(**settings: Any) -> AsyncIterator[KubernetesEngine]:
        given = {"kubeconfig": str(tmp_path / "kubeconfig"), "image": "train:1", "request_timeout": "5s", **settings}
        context = make_context("extensions", "tasks", clock=ImpatientClock())
        async with KubernetesEngine(KubernetesConfig(**given), context) as engine:
            yield engine

    async with served(cluster) as port:
        write_kubeconfig(tmp_path / "kubeconfig", f"http://127.0.0.1:{port}", {"token": "t0p"})
        yield opened


@pytest.fixture
async def engine(connect: Connect) -> AsyncIterator[KubernetesEngine]:
    async with connect() as engine:
        await until_watched(engine)
        yield engine


async def until_watched(engine: KubernetesEngine) -> None:
    await until(lambda: engine._known.problem is None)


async def state(engine: KubernetesEngine, handle: str = NAME) -> Observed | None:
    return (await engine.states([handle])).get(handle)


async def until_state(engine: KubernetesEngine, status: str, handle: str = NAME) -> Observed:
    async def now() -> Observed | None:
        try:
            return await state(engine, handle)
        except NoAnswer:
            return None

    while (found := await now()) is None or found.status != status:
        await SystemClock().sleep(0.01)
    return found


async def until_unknown(engine: KubernetesEngine, handle: str) -> None:
    """Returns when the engine knows no such task. Jobs and pods have watches of their own."""

    async def is_known() -> bool:
        try:
            return await state(engine, handle) is not None
        except NoAnswer:
            return True

    while await is_known():
        await SystemClock().sleep(0.01)


async def output(engine: KubernetesEngine, follow: bool = False, tail: int | None = None) -> bytes:
    return b"".join([piece async for piece in engine.logs(NAME, follow, tail)])


async def test_a_job_goes_from_starting_over_running_to_its_exit_code(
    engine: KubernetesEngine, cluster: FakeCluster
) -> None:
    assert await engine.submit(TASK) == NAME
    reason = "the Job has no pod yet; kubectl describe job zernel-t1 shows why"
    assert await state(engine) == Observed("starting", reason=reason)
    pod = cluster.add_pod(NAME)
    cluster.run(pod)
    assert (await until_state(engine, "running")).started is not None
    cluster.end(pod, 3)
    ended = await until_state(engine, "failed")
    assert (ended.exit_code, ended.signal, ended.ended - ended.started) == (3, None, 60.0)  # type: ignore[operator]


async def test_the_job_has_the_command_the_limits_and_the_ids_of_the_task(
    connect: Connect, cluster: FakeCluster
) -> None:
    template = {
        "metadata": {"labels": {"kueue.x-k8s.io/queue-name": "gpus"}},
        "spec": {
            "backoffLimit": 6,
            "ttlSecondsAfterFinished": 1,
            "template": {
                "spec": {
                    "nodeSelector": {"pool": "h100"},
                    "containers": [
                        {"name": "sidecar", "image": "otel"},
                        {
                            "name": "task",
                            "image": "other",
                            "env": [{"name": "LR", "value": "9"}, {"name": "A", "value": "b"}],
                        },
                    ],
                }
            },
        },
    }
    limits = TaskLimits(cpu=1.5, memory=2 << 30, gpus=2, time=90.5)
    async with connect(job_template=template, service_account="trainer") as engine:
        await engine.submit(replace(TASK, limits=limits, working_dir="/work"))
    (job,) = cluster.bodies
    spec, pod = job["spec"], job["spec"]["template"]["spec"]
    assert (spec["backoffLimit"], spec["completions"], spec.get("ttlSecondsAfterFinished")) == (0, 1, None)
    assert job["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "gpus"
    assert (pod["restartPolicy"], pod["nodeSelector"], pod["serviceAccountName"]) == (
        "Never",
        {"pool": "h100"},
        "trainer",
    )
    assert pod["activeDeadlineSeconds"] == 91
    task, sidecar = pod["containers"]
    assert sidecar == {"name": "sidecar", "image": "otel"}
    assert task["image"] == "train:1"
    assert task["resources"]["limits"] == {"cpu": "1500m", "memory": str(2 << 30), "nvidia.com/gpu": "2"}
    assert task["workingDir"] == "/work"
    # Kubernetes expands $(NAME); $$ is its escape.
    assert task["command"] == ["python", "train.py", "--lr=$$(LR) $$HOME"]
    env = {one["name"]: one["value"] for one in task["env"]}
    assert (env["LR"], env["A"], env["COST"]) == ("0.1", "b", "$$5")
    assert env["ZERNEL_TASK_ID"] == env["ZERNEL_JOB_ID"] == "t1"


async def test_a_task_that_is_submitted_twice_runs_once(engine: KubernetesEngine, cluster: FakeCluster) -> None:
    assert await engine.submit(TASK) == await engine.submit(TASK) == NAME
    assert len(cluster.bodies) == 1


async def test_a_lost_answer_to_a_submit_leaves_one_job(connect: Connect, cluster: FakeCluster) -> None:
    cluster.lose_answer_of = "POST"
    async with connect() as engine:
        with pytest.raises(NoAnswer):
            await engine.submit(TASK)
        # The creation may still be in progress on a slow server: nothing may be concluded yet.
        with pytest.raises(NoAnswer, match="in progress"):
            await engine.recover(["t1"])
        assert await engine.submit(TASK) == NAME
        assert await engine.recover(["t1", "t2"]) == {"t1": NAME}
    assert len(cluster.bodies) == 1


async def test_a_job_of_somebody_else_with_the_same_name_is_not_taken(
    connect: Connect, engine: KubernetesEngine
) -> None:
    await engine.submit(TASK)
    with pytest.raises(TaskRejected, match="made for another task"):
        await engine.submit(replace(TASK, command=("true",)))
    async with connect(instance="other") as other:
        with pytest.raises(TaskRejected, match="made for another task"):
            await other.submit(TASK)


async def test_a_restarted_collector_finds_its_jobs_and_their_ends(connect: Connect, cluster: FakeCluster) -> None:
    async with connect() as first:
        await first.submit(TASK)
        cluster.run(pod := cluster.add_pod(NAME))
    cluster.end(pod, 7)
    async with connect() as second:
        assert await second.recover(["t1"]) == {"t1": NAME}
        assert (await until_state(second, "failed")).exit_code == 7


async def test_the_exit_code_of_a_collected_pod_is_kept(engine: KubernetesEngine, cluster: FakeCluster) -> None:
    await engine.submit(TASK)
    cluster.run(pod := cluster.add_pod(NAME))
    cluster.end(pod, 42)
    cluster.delete("pods", pod)
    cluster.finish_job(NAME, "Failed", "BackoffLimitExceeded", "Job has reached the specified backoff limit")
    assert (await until_state(engine, "failed")).exit_code == 42
    cluster.delete("jobs", NAME)
    assert (await until_state(engine, "failed")).exit_code == 42
    await engine.forget(NAME)
    assert await state(engine) is None


async def test_the_condition_of_the_job_has_the_exit_code_of_a_pod_that_was_never_seen(
    connect: Connect, cluster: FakeCluster
) -> None:
    async with connect() as first:
        await first.submit(TASK)
    message = "Container task for pod train/zernel-t1-x1 failed with exit code 9 matching FailJob rule at index 0"
    cluster.finish_job(NAME, "Failed", "PodFailurePolicy", message)
    async with connect() as second:
        assert (await until_state(second, "failed")).exit_code == 9


async def test_a_finished_job_waits_for_its_pod_so_that_the_exit_code_is_not_lost(
    engine: KubernetesEngine, cluster: FakeCluster
) -> None:
    """The watch of Jobs may be ahead of the watch of pods."""
    await engine.submit(TASK)
    pod = cluster.add_pod(NAME)
    await until(lambda: NAME in engine._known.pods)
    events = cluster.events
    cluster.events = []  # the event of the pod's end is late
    cluster.end(pod, 5)
    cluster.events = events
    cluster.finish_job(NAME, "Failed", "BackoffLimitExceeded")
    assert (await until_state(engine, "failed")).exit_code == 5


async def test_a_watch_goes_on_after_410_with_a_new_list_and_sees_every_difference(
    engine: KubernetesEngine, cluster: FakeCluster
) -> None:
    for number in range(3):
        await engine.submit(replace(TASK, id=f"n{number}"))
    cluster.run(pod := cluster.add_pod("zernel-n0"))
    await until_state(engine, "running", "zernel-n0")
    lists = cluster.requests["GET pods"]
    cluster.cut_watches()
    cluster.end(pod, 1)
    cluster.delete("jobs", "zernel-n1")
    cluster.run(cluster.add_pod("zernel-n2"))
    cluster.compact()
    assert (await until_state(engine, "failed", "zernel-n0")).exit_code == 1
    await until_state(engine, "running", "zernel-n2")
    await until_unknown(engine, "zernel-n1")
    assert cluster.requests["GET pods"] > lists


async def test_a_watch_that_ends_goes_on_without_a_new_list(engine: KubernetesEngine, cluster: FakeCluster) -> None:
    await engine.submit(TASK)
    lists = cluster.requests["GET jobs"]
    watches = cluster.requests["GET watch"]
    cluster.cut_watches()
    cluster.run(cluster.add_pod(NAME))
    await until_state(engine, "running")
    await until(lambda: cluster.requests["GET watch"] >= watches + 2)
    assert cluster.requests["GET jobs"] == lists


async def test_states_are_unknown_while_the_server_is_away_never_lost(
    engine: KubernetesEngine, cluster: FakeCluster
) -> None:
    await engine.submit(TASK)
    cluster.interfere = lambda method, path: (503, {"message": "etcd is away"})
    cluster.cut_watches()
    await until(lambda: engine._known.problem)
    with pytest.raises(NoAnswer, match="etcd is away"):
        await engine.states([NAME])
    cluster.interfere = lambda method, path: None
    assert (await until_state(engine, "starting")).exit_code is None


async def test_cancel_deletes_the_job_with_its_pods_and_the_end_is_cancelled(
    engine: KubernetesEngine, cluster: FakeCluster
) -> None:
    await engine.submit(TASK)
    cluster.run(pod := cluster.add_pod(NAME))
    await until_state(engine, "running")
    await engine.cancel(NAME)
    assert "deletionTimestamp" in cluster.objects["pods"][pod]["metadata"], "propagationPolicy is not Background"
    # The command has a grace period, in which it still uses its GPUs.
    await until(lambda: NAME not in engine._known.jobs)
    assert (await until_state(engine, "running")).reason == "its Job is deleted, and its pod is ending"
    cluster.end(pod, 143)
    cluster.delete("pods", pod)
    assert (await until_state(engine, "cancelled")).exit_code == 143
    await engine.cancel(NAME)


async def test_cancel_before_the_pod_exists_leaves_nothing(engine: KubernetesEngine, cluster: FakeCluster) -> None:
    await engine.submit(TASK)
    await engine.cancel(NAME)
    await until(lambda: NAME not in engine._known.jobs)
    assert await state(engine) is None
    assert cluster.objects["jobs"] == {}


async def test_cancel_of_an_ended_task_keeps_its_result(engine: KubernetesEngine, cluster: FakeCluster) -> None:
    await engine.submit(TASK)
    cluster.end(cluster.add_pod(NAME), 0)
    await engine.cancel(NAME)
    assert cluster.requests["DELETE jobs/zernel-t1"] == 0
    assert (await until_state(engine, "succeeded")).exit_code == 0


async def test_a_task_that_ends_during_its_cancel_keeps_its_result(
    engine: KubernetesEngine, cluster: FakeCluster
) -> None:
    """The controller changes the Job between the look at it and its deletion: the precondition fails."""
    await engine.submit(TASK)
    pod = cluster.add_pod(NAME)

    def end_first(method: str, path: str) -> None:
        if method == "DELETE" and cluster.objects["pods"][pod]["status"]["phase"] == "Pending":
            cluster.end(pod, 0)
            cluster.finish_job(NAME, "Complete")

    cluster.interfere = end_first
    await engine.cancel(NAME)
    assert NAME in cluster.objects["jobs"]
    assert (await until_state(engine, "succeeded")).exit_code == 0


async def test_a_drained_pod_is_failed_with_its_reason(engine: KubernetesEngine, cluster: FakeCluster) -> None:
    await engine.submit(TASK)
    pod = cluster.add_pod(NAME)
    cluster.mark_deleting(pod)
    drained = {"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI", "message": "drained"}
    cluster.end(pod, 143, conditions=[drained])
    ended = await until_state(engine, "failed")
    assert (ended.exit_code, ended.reason) == (143, "EvictionByEvictionAPI: drained")


async def test_a_job_that_somebody_deletes_is_gone(engine: KubernetesEngine, cluster: FakeCluster) -> None:
    await engine.submit(TASK)
    cluster.run(pod := cluster.add_pod(NAME))
    await until_state(engine, "running")
    cluster.delete("jobs", NAME)
    cluster.delete("pods", pod)
    await until(lambda: not engine._known.jobs and not engine._known.pods)
    assert await state(engine) is None


@pytest.mark.parametrize(
    ("answer", "error", "text"),
    [
        ((422, {"message": "spec is invalid"}), TaskRejected, "spec is invalid"),
        ((403, {"message": 'admission webhook "kueue" denied the request'}), TaskRejected, "kueue"),
        ((403, {"message": "exceeded quota: gpus"}), NoAnswer, "exceeded quota"),
        ((403, {"message": 'User "x" cannot create resource "jobs"'}), NoAnswer, "grant the permissions"),
        ((429, {"message": "too many requests"}), NoAnswer, "too many requests"),
    ],
)
async def test_refusals_for_good_and_for_now_are_told_apart(
    engine: KubernetesEngine, cluster: FakeCluster, answer: Any, error: type[Exception], text: str
) -> None:
    cluster.interfere = lambda method, path: answer if method == "POST" else None
    with pytest.raises(error, match=text):
        await engine.submit(TASK)


async def test_a_replaced_token_is_used_for_the_next_request(
    connect: Connect, cluster: FakeCluster, tmp_path: Path
) -> None:
    config = yaml.safe_load((tmp_path / "kubeconfig").read_text("utf-8"))
    token = tmp_path / "token"
    token.write_text("first\n", "utf-8")
    config["users"][0]["user"] = {"tokenFile": "token"}
    (tmp_path / "kubeconfig").write_text(yaml.safe_dump(config), "utf-8")
    cluster.token = "first"
    async with connect() as engine:
        await engine.submit(TASK)
        cluster.token = "second"
        token.write_text("second\n", "utf-8")
        await until(lambda: engine._client._files.value[0].headers["authorization"] == "Bearer second")
        await engine.submit(replace(TASK, id="t2"))
        assert "second" not in repr(engine._client._files.value[0])


async def test_logs_follow_a_task_and_resume_without_repeats(engine: KubernetesEngine, cluster: FakeCluster) -> None:
    await engine.submit(TASK)
    cluster.run(pod := cluster.add_pod(NAME))
    same = "2026-11-22T10:00:00.5Z"
    cluster.write(pod, (same, "one\n"), (same, "two\n"), (same, "x" * 200_000 + "\n"))
    cluster.cut_log_after = 100_000
    pieces = []
    async for piece in engine.logs(NAME, follow=True, tail=None):
        assert len(piece) <= 64 << 10
        pieces.append(piece)
        if b"".join(pieces).endswith(b"x\n"):
            cluster.write(pod, ("2026-11-22T10:00:00.51Z", "three\n"))
            cluster.end(pod, 0)
    assert b"".join(pieces) == b"one\ntwo\n" + b"x" * 200_000 + b"\nthree\n"
    assert cluster.requests["GET log"] >= 3


async def test_logs_have_a_tail(engine: KubernetesEngine, cluster: FakeCluster) -> None:
    await engine.submit(TASK)
    pod = cluster.add_pod(NAME)
    cluster.write(pod, *((f"2026-11-22T10:00:0{number}Z", f"{number}\n") for number in range(5)))
    cluster.end(pod, 1)
    assert await output(engine) == b"0\n1\n2\n3\n4\n"
    assert await output(engine, tail=2) == b"3\n4\n"
    assert await output(engine, follow=True, tail=2) == b"3\n4\n"


async def test_logs_of_a_task_that_has_not_started_or_is_gone_are_refused(
    engine: KubernetesEngine, cluster: FakeCluster
) -> None:
    with pytest.raises(LogsGone, match="deleted"):
        await output(engine, follow=True)
    await engine.submit(TASK)
    with pytest.raises(LogsGone, match="has not started"):
        await output(engine)


async def test_errors_of_the_configuration_name_the_key_and_the_remedy(tmp_path: Path) -> None:
    context = make_context("extensions", "tasks")
    with pytest.raises(CannotStart, match="extensions::tasks::kubernetes::image: tasks have no image"):
        await KubernetesEngine(KubernetesConfig(), context).__aenter__()
    with pytest.raises(CannotStart, match="does not run in a pod"):
        await KubernetesEngine(KubernetesConfig(image="i"), context, tmp_path, {}).__aenter__()
    write_kubeconfig(tmp_path / "k", "https://host", {"exec": {"command": "aws"}})
    with pytest.raises(CannotStart, match="uses exec, which is not supported"):
        await KubernetesEngine(KubernetesConfig(image="i", kubeconfig=str(tmp_path / "k")), context).__aenter__()
    write_kubeconfig(tmp_path / "k", "host:6443", {})
    with pytest.raises(CannotStart, match="the cluster has no server"):
        await KubernetesEngine(KubernetesConfig(image="i", kubeconfig=str(tmp_path / "k")), context).__aenter__()
    with pytest.raises(ValueError, match="'kind' is not a part of the template"):
        KubernetesConfig(job_template={"kind": "Job"})
    with pytest.raises(ValueError, match="containers must be a list"):
        KubernetesConfig(job_template={"spec": {"template": {"spec": {"containers": {"name": "task"}}}}})
