"""Loops without a DataLoader, or without an optimizer in its usual place."""

from tests.processors.phases.training_loops.simulated_thread import SimulatedThread


def delayed_policy(thread: SimulatedThread) -> None:
    """Twin-delayed policy gradients: every second update is followed by one of the policy. A target is computed without
    gradients."""
    for number in range(60):
        thread.inference(0.8, 3)
        thread.host(1.2)
        thread.inference(0.7, 6)
        thread.forward(4, 12)
        thread.learn(5, 1)
        if number % 2:
            thread.forward(3, 8)
            thread.learn(4, 1)


def pauses_in_forward_without_a_loader(thread: SimulatedThread) -> None:
    """The same without a loader."""
    for _ in range(20):
        thread.data(5)
        thread.forward(10)
        thread.spend("gpu_compute", 6)
        thread.train(2, 6)


def tokens(thread: SimulatedThread) -> None:
    """Generation: the host chooses each token, in one region without gradients."""
    for _ in range(10):
        for _ in range(12):
            thread.inference(5, 30, "operator")
            thread.spend("gpu_compute", 1.3)
        thread.inference(5, 30)
        thread.host(20)


def short_rollouts(thread: SimulatedThread) -> None:
    """Short passes and steps of an environment."""
    for _ in range(10):
        for _ in range(8):
            thread.rollout(16, 0.3, 0.25)
        thread.train()


def gan(thread: SimulatedThread) -> None:
    """Two optimizers of one name, without a loader."""
    for _ in range(40):
        thread.data(3)
        thread.forward(12, 30)
        thread.zero_grad()
        thread.learn(14)
        thread.forward(6, 15)
        thread.zero_grad()
        thread.learn(9)


def wasserstein_gan(thread: SimulatedThread) -> None:
    """A critic with five updates for each one of the generator."""
    for _ in range(12):
        for _ in range(5):
            thread.data(3)
            thread.forward(12, 30)
            thread.learn(14)
        thread.forward(6, 45)
        thread.learn(9)


def gan_of_two_loaders(thread: SimulatedThread) -> None:
    """A loader for each of two optimizers."""
    for _ in range(20):
        for _ in range(2):
            thread.load()
            thread.train()
            thread.zero_grad()


def lbfgs(thread: SimulatedThread, loads: bool = True) -> None:
    """An optimizer that calls the forward and the backward pass."""
    for _ in range(20):
        thread.load() if loads else thread.data(5)
        with thread.around("optimizer"):
            for _ in range(3):
                thread.zero_grad(0.2)
                thread.forward(8)
                thread.backward(10)
                thread.spend("optimizer_step", 2)


def reinforcement(thread: SimulatedThread) -> None:
    """A rollout without gradients, then some updates."""
    for _ in range(8):
        for _ in range(30):
            thread.inference(1.0, 4)
            thread.host(3.0)
        for _ in range(6):
            thread.train()


def keras(thread: SimulatedThread) -> None:
    """An optimizer that is not torch's, without a loader."""
    for _ in range(20):
        thread.data(3)
        thread.forward()
        thread.backward()
        thread.update()


def keras_with_a_loader(thread: SimulatedThread) -> None:
    """The same with a loader."""
    for _ in range(20):
        thread.load()
        thread.forward()
        thread.backward()
        thread.update()


def generation(thread: SimulatedThread) -> None:
    """Text generation, without training."""
    for _ in range(10):
        thread.inference(300, 4000)
        thread.host(20)


def queue(thread: SimulatedThread) -> None:
    """A prefetching thread: it loads, and the training thread waits in a queue."""
    loader = SimulatedThread(thread=2, spans=thread.spans)
    for _ in range(30):
        loader.load(20)
        loader.now += 8
        thread.data(6)
        thread.train()
        thread.zero_grad()


WITHOUT_A_LOADER = (
    *(delayed_policy, gan, wasserstein_gan, gan_of_two_loaders, lbfgs, reinforcement, keras, keras_with_a_loader),
    *(pauses_in_forward_without_a_loader, tokens, short_rollouts, generation, queue),
)
