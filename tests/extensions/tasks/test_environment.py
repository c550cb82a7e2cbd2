"""The ids of a task in the environment of its processes, as the receivers of telemetry read them."""

from otel_zernel_extensions.tasks.engines.engine import TaskSpec, task_environment
from otel_zernel_libraries.job_environment import job_attributes, service_name


def attributes(**env: str) -> dict[str, str]:
    return job_attributes(task_environment(TaskSpec("bert-1", ("true",), env=env)), "node-1")


def test_processes_of_a_task_have_its_id_and_job() -> None:
    assert attributes() == {"zernel.job.id": "bert-1", "zernel.task.id": "bert-1"}


def test_several_tasks_can_be_one_job() -> None:
    assert attributes(ZERNEL_JOB_ID="bert, large") == {"zernel.job.id": "bert, large", "zernel.task.id": "bert-1"}


def test_attributes_of_the_client_are_kept_and_cannot_hide_the_task() -> None:
    given = {"OTEL_RESOURCE_ATTRIBUTES": "team=nlp,zernel.task.id=other", "ZERNEL_TASK_ID": "other"}
    assert attributes(**given)["zernel.task.id"] == "bert-1"
    environment = task_environment(TaskSpec("bert-1", ("true",), env=given))
    assert environment["ZERNEL_TASK_ID"] == "bert-1"
    assert environment["OTEL_RESOURCE_ATTRIBUTES"].startswith("team=nlp,")


def test_the_name_of_a_task_is_the_name_of_its_service() -> None:
    assert service_name(task_environment(TaskSpec("bert-1", ("true",), name="bert")), "python3") == "bert"
    own = {"OTEL_SERVICE_NAME": "mine"}
    assert service_name(task_environment(TaskSpec("bert-1", ("true",), name="bert", env=own)), "python3") == "mine"
