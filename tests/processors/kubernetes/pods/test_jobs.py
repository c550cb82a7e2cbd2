"""The job of a pod, by the labels of each operator."""

from typing import Any

import pytest

from otel_zernel_processors.kubernetes.pods.pod import job_of


@pytest.mark.parametrize(
    ("labels", "id_", "attributes"),
    [
        ({"batch.kubernetes.io/job-name": "fit", "batch.kubernetes.io/job-completion-index": "3"}, "train/fit",
         {"zernel.job.index": 3}),
        ({"job-name": "old"}, "train/old", {}),
        ({"jobset.sigs.k8s.io/jobset-name": "llama", "jobset.sigs.k8s.io/replicatedjob-name": "worker",
          "jobset.sigs.k8s.io/restart-attempt": "2", "batch.kubernetes.io/job-name": "llama-worker-0",
          "batch.kubernetes.io/job-completion-index": "1", "kueue.x-k8s.io/queue-name": "research"}, "train/llama",
         {"zernel.job.replica": "worker", "zernel.job.index": 1, "zernel.job.attempt": 2,
          "zernel.job.queue": "research"}),
        ({"training.kubeflow.org/job-name": "bert", "training.kubeflow.org/replica-type": "master",
          "training.kubeflow.org/replica-index": "0"}, "train/bert",
         {"zernel.job.replica": "master", "zernel.job.index": 0}),
        ({"volcano.sh/job-name": "v", "volcano.sh/task-spec": "gpu", "volcano.sh/task-index": "7"}, "train/v",
         {"zernel.job.replica": "gpu", "zernel.job.index": 7}),
        ({"ray.io/originated-from-cr-name": "rayjob", "ray.io/cluster": "rayjob-raycluster-x", "ray.io/group": "gpus"},
         "train/rayjob", {"zernel.job.replica": "gpus"}),
        ({"leaderworkerset.sigs.k8s.io/name": "lws", "leaderworkerset.sigs.k8s.io/worker-index": "1"}, "train/lws",
         {"zernel.job.index": 1}),
        ({"scheduler.slinky.slurm.net/slurm-jobid": "4711", "job-name": "x"}, "4711", {}),
        ({"app": "web"}, "", None),
        ({"job-name": "x", "batch.kubernetes.io/job-completion-index": "many"}, "train/x", {}),
    ],
)  # fmt: skip
def test_the_widest_job_of_a_pod_is_named_with_its_namespace(
    labels: dict[str, str], id_: str, attributes: dict[str, Any] | None
) -> None:
    job = job_of(labels, {}, "train")
    assert job.id == id_
    assert job.attributes == attributes


def test_the_index_of_an_older_job_is_an_annotation() -> None:
    job = job_of({"job-name": "x"}, {"batch.kubernetes.io/job-completion-index": "4"}, "train")
    assert job.attributes == {"zernel.job.index": 4}


@pytest.mark.parametrize(
    ("labels", "is_one"),
    [
        ({"ray.io/originated-from-cr-name": "x", "ray.io/originated-from-crd": "RayJob"}, True),
        ({"ray.io/originated-from-cr-name": "x", "ray.io/originated-from-crd": "RayCluster"}, False),
        ({"ray.io/cluster": "x"}, False),
        ({"leaderworkerset.sigs.k8s.io/name": "x"}, False),
        ({"job-name": "x"}, True),
        ({"scheduler.slinky.slurm.net/slurm-jobid": "1", "ray.io/cluster": "x"}, True),
    ],
)
def test_what_may_run_several_trainings_is_no_single_job(labels: dict[str, str], is_one: bool) -> None:
    assert job_of(labels, {}, "train").is_one is is_one
