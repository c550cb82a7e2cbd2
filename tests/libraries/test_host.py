"""The name of the machine comes from the environment, else from the system."""

import socket

from otel_zernel_libraries.job_environment import host_name


def test_the_variable_names_the_node_of_a_pod() -> None:
    assert host_name({"ZERNEL_HOST_NAME": "gpu-7"}) == "gpu-7"


def test_without_the_variable_it_is_the_name_of_the_system() -> None:
    assert host_name({}) == host_name({"ZERNEL_HOST_NAME": ""}) == socket.gethostname()
