"""JAX on the CPU, which also launches kernels on the stand-in GPU and waits for them, as on a GPU."""

import time

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.training.gpu import StandinGpu
from tests.frameworks.jobs.recording.run import Run

WIDTH, STEPS = 512, 100


def run(run: Run) -> None:
    """A linear model by gradient descent."""
    run.truth.versions["jax"] = jax.__version__
    gpu = StandinGpu(run.truth.folder)
    update = jax.jit(lambda weights, inputs: weights - 1e-4 * jax.grad(_loss)(weights, inputs))
    weights = update(jnp.zeros((WIDTH, WIDTH)), jnp.zeros((WIDTH, WIDTH)))
    while not run.go.exists():
        gpu.compute(1, 1)
        with run.truth.region("wait"):
            gpu.wait()
        time.sleep(0.02)
    random, path = np.random.default_rng(0), run.truth.folder / "inputs.npy"
    np.save(path, random.random((WIDTH, WIDTH), np.float32))
    with run.truth.loop():
        for _ in range(STEPS):
            with run.truth.region("data"):
                inputs = np.load(path)
                time.sleep(0.01)
            with run.truth.region("forward"):
                weights = update(weights, inputs)
                weights.block_until_ready()
                gpu.compute(20, 0.5)
            with run.truth.region("wait"):
                gpu.wait()
            run.truth.stepped()


def _loss(weights: jax.Array, inputs: jax.Array) -> jax.Array:
    return jnp.mean((inputs @ weights - inputs) ** 2)
