"""The client for the APIs: large answers, TLS, service accounts."""

import json
from pathlib import Path
from typing import Any

import pytest

from otel_zernel.errors import CannotStart, NoAnswer
from otel_zernel.testing import ImpatientClock, make_context, until
from otel_zernel_extensions.tasks.engines.engine import TaskSpec
from otel_zernel_extensions.tasks.engines.kubernetes import KubernetesConfig, KubernetesEngine
from otel_zernel_libraries.clients.json_client import _large_object
from tests.exporters.otlp.certificates import Authority
from tests.libraries.clients.kubernetes.cluster import FakeCluster
from tests.libraries.clients.serving import served

TASK = TaskSpec("t1", ("true",))


@pytest.mark.parametrize(
    "value",
    [
        {"jobs": [], "errors": []},
        {
            "meta": {"a": 1},
            "errors": [],
            "jobs": [{"name": 'x], "jobs": [1', "nested": [[1], {}]}, {"job_id": 2}],
            "z": 3,
        },
    ],
)
@pytest.mark.parametrize("indent", [None, 2])
def test_a_large_list_is_read_as_by_a_plain_parser(value: object, indent: int | None) -> None:
    assert _large_object(json.dumps(value, indent=indent).encode()) == value


@pytest.mark.parametrize(
    "data", [b"", b'{"jobs": [', b'{"jobs": [1, 2', b'{"a": {"jobs": [1]}}', b"\xff", b'{"jobs": [1 2]}x', b"[]"]
)
def test_a_broken_large_list_is_no_answer(data: bytes) -> None:
    assert "jobs" not in _large_object(data)


async def test_a_pod_uses_its_service_account_over_tls_and_reads_new_tokens_and_authorities(tmp_path: Path) -> None:
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
    first, second = Authority(tmp_path / "first"), Authority(tmp_path / "second")
    account = tmp_path / "account"
    account.mkdir()
    (account / "namespace").write_text("train", "utf-8")
    (account / "token").write_text("one", "utf-8")
    (account / "ca.crt").write_bytes(Path(first.ca_file).read_bytes())  # noqa: ASYNC240  # a small file
    cluster = FakeCluster()
    cluster.token = "one"
    files = second.issue("localhost")
    context = make_context("extensions", "tasks", clock=ImpatientClock())
    async with served(cluster, ssl_certfile=files.cert_file, ssl_keyfile=files.key_file) as port:
        pod = {"KUBERNETES_SERVICE_HOST": "localhost", "KUBERNETES_SERVICE_PORT": str(port)}
        async with KubernetesEngine(KubernetesConfig(image="i"), context, account, pod) as engine:
            with pytest.raises(NoAnswer, match=r"CERTIFICATE_VERIFY_FAILED"):
                await engine.submit(TASK)
            (account / "ca.crt").write_bytes(Path(second.ca_file).read_bytes())  # noqa: ASYNC240  # a small file
            (account / "token").write_text("two\n", "utf-8")
            cluster.token = "two"
            await until(lambda: engine._client._files.value[0].headers["authorization"] == "Bearer two")
            assert await engine.submit(TASK) == "zernel-t1"
            await until(lambda: engine._known.problem is None)


async def test_a_service_account_without_a_token_is_named(tmp_path: Path) -> None:
    pod = {"KUBERNETES_SERVICE_HOST": "10.0.0.1"}
    engine = KubernetesEngine(KubernetesConfig(image="i"), make_context("extensions", "tasks"), tmp_path, pod)
    with pytest.raises(CannotStart, match=r"cannot read .*/token: No such file"):
        await engine.__aenter__()


async def test_answers_of_another_layout_end_no_watch(tmp_path: Path) -> None:
    """Whatever answers, the watches go on, and no task is called lost."""
    account = tmp_path / "account"
    account.mkdir()
    for name, text in (("namespace", "train"), ("token", "one"), ("ca.crt", "")):
        (account / name).write_text(text, "utf-8")
    certificate = Authority(tmp_path)
    (account / "ca.crt").write_bytes(Path(certificate.ca_file).read_bytes())  # noqa: ASYNC240  # a small file
    cluster = FakeCluster()
    files = certificate.issue("localhost")
    context = make_context("extensions", "tasks", clock=ImpatientClock())
    async with served(cluster, ssl_certfile=files.cert_file, ssl_keyfile=files.key_file) as port:
        pod = {"KUBERNETES_SERVICE_HOST": "localhost", "KUBERNETES_SERVICE_PORT": str(port)}
        for items in (None, [1], [{"metadata": 5}]):
            body: dict[str, Any] = {"items": items, "metadata": {}}
            cluster.interfere = lambda method, path, body=body: (200, body)  # type: ignore[misc]
            async with KubernetesEngine(KubernetesConfig(image="i"), context, account, pod) as engine:
                await until(lambda: "has not arrived" not in (engine._known.problem or ""))
                with pytest.raises(NoAnswer):
                    await engine.states(["zernel-t1"])
                cluster.interfere = lambda method, path: None
                await until(lambda: engine._known.problem is None)
