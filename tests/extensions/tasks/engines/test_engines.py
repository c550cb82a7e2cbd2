"""The extension with the engines of Kubernetes and Slurm, by its API."""

from pathlib import Path

import pytest

from otel_zernel.testing import until
from otel_zernel_extensions.tasks.config import TasksConfig
from tests.extensions.tasks.engines.slurm.controller import FakeSlurm
from tests.extensions.tasks.running import running
from tests.libraries.clients.kubernetes.cluster import FakeCluster
from tests.libraries.clients.kubernetes.kubeconfig import write_kubeconfig
from tests.libraries.clients.serving import served


async def test_a_task_runs_on_kubernetes_and_a_restart_in_between_loses_nothing(tmp_path: Path) -> None:
    cluster = FakeCluster()
    async with served(cluster) as port:
        write_kubeconfig(tmp_path / "kubeconfig", f"http://127.0.0.1:{port}", {"token": "t0p"})
        settings = {"kubeconfig": str(tmp_path / "kubeconfig"), "image": "train:1"}
        async with running(tmp_path / "tasks", engine="kubernetes", kubernetes=settings) as client:
            assert (await client.post(id="bert", command=["train"])).status == 201
            await client.reaches("bert", "starting")
            await until(lambda: "zernel-bert" in cluster.objects["jobs"])
            cluster.run(pod := cluster.add_pod("zernel-bert"))
            await client.reaches("bert", "running")
            cluster.write(pod, ("2026-11-22T10:00:00Z", "step 1\n"))
            assert await client.log("bert") == b"step 1\n"
        cluster.end(pod, 137, "OOMKilled")
        async with running(tmp_path / "tasks", engine="kubernetes", kubernetes=settings) as client:
            task = await client.end("bert")
            assert (task["status"], task["exit_code"], task["reason"]) == ("failed", 137, "OOMKilled")
            await client.post(id="gone", command=["train"])
            await client.reaches("gone", "starting")
            await client.delete("gone")
            assert (await client.end("gone"))["status"] == "cancelled"
        assert "zernel-gone" not in cluster.objects["jobs"]


async def test_a_task_runs_on_slurm_and_a_refused_one_fails_with_the_reason(tmp_path: Path) -> None:
    slurm = FakeSlurm()
    (tmp_path / "token").write_text("t0p", "utf-8")
    async with served(slurm) as port:
        settings = {
            "endpoint": f"http://127.0.0.1:{port}",
            "token_file": str(tmp_path / "token"),
            "user": "trainer",
            "output_directory": str(tmp_path),
            "list_interval": "10ms",
        }
        # The jobs of FakeSlurm ended in 1970: usually, the extension would delete such old tasks.
        async with running(tmp_path / "tasks", engine="slurm", slurm=settings, retention="1000000h") as client:
            await client.post(id="bert", command=["train"])
            await until(lambda: 101 in slurm.jobs)
            slurm.set_state(101, "RUNNING")
            await client.reaches("bert", "running")
            slurm.set_state(101, "OUT_OF_MEMORY", code=0, signal=9)
            task = await client.end("bert")
            assert (task["status"], task["signal"]) == ("failed", 9)
            assert task["reason"].startswith("OUT_OF_MEMORY")


def test_slurm_without_its_section_is_a_mistake_in_the_configuration() -> None:
    with pytest.raises(
        ValueError, match="the engine slurm needs the section slurm, with endpoint and output_directory"
    ):
        TasksConfig.model_validate({"engine": "slurm"})
