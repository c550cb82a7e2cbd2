"""Reinforcement learning: many small forward passes without gradients, then updates."""

import random
import time
from typing import Any

import gymnasium
import numpy as np
import torch
from torch import nn
from torch.nn.functional import cross_entropy, mse_loss

from tests.frameworks.jobs.models.small import layers
from tests.frameworks.jobs.recording.pytorch import TorchRun
from tests.frameworks.jobs.recording.slowness import busy

STATES, ACTIONS = 24, 4
HORIZON = 100
EPISODES = 50
ENVIRONMENT_S = 0.0002


class Walk(gymnasium.Env[Any, Any]):
    """An environment that takes ENVIRONMENT_S for a step."""

    observation_space = gymnasium.spaces.Box(-1, 1, (STATES,), np.float32)
    action_space = gymnasium.spaces.Discrete(ACTIONS)

    def __init__(self, run: TorchRun) -> None:
        self.run, self.count = run, 0

    def reset(self, **_: Any) -> tuple[Any, dict[str, Any]]:
        self.count = 0
        return self.observation_space.sample(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        with self.run.truth.region("host"):
            busy(ENVIRONMENT_S)
            self.run.delay("loader")
            self.count += 1
            return self.observation_space.sample(), float(action == 0), self.count >= HORIZON, False, {}


def by_hand(run: TorchRun) -> None:
    """REINFORCE: an episode without gradients, then one update."""
    model, environment = layers(ACTIONS, 256), Walk(run)
    model[0] = nn.Linear(STATES, 256)
    run.watch_model(model)
    optimizer = torch.optim.Adam(model.parameters())
    run.get_ready()
    with run.truth.loop():
        for _ in range(EPISODES):
            states, actions, rewards = _episode(run, model, environment)
            with run.truth.region("forward"):
                chosen = torch.distributions.Categorical(logits=model(states)).log_prob(actions)
                loss = -(chosen * (rewards - rewards.mean())).sum()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            run.truth.stepped()


def _episode(run: TorchRun, model: nn.Module, environment: Walk) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    states, actions, rewards = [], [], []
    state, _ = environment.reset()
    done = False
    while not done:
        states.append(torch.from_numpy(state))
        with torch.no_grad(), run.truth.region("rollout"):
            action = int(torch.distributions.Categorical(logits=model(states[-1])).sample())
        state, reward, done, *_ = environment.step(action)
        actions.append(action)
        rewards.append(reward)
    return torch.stack(states), torch.tensor(actions), torch.tensor(rewards)


def decorated(run: TorchRun) -> None:
    """REINFORCE, whose actions come from a decorated function. A step of the environment is 0.2 ms of NumPy."""
    policy, weights = _network(ACTIONS), np.random.default_rng(0).random((STATES, STATES), np.float32)
    optimizer = torch.optim.Adam(policy.parameters(), 3e-4)

    @torch.no_grad()
    def act(state: np.ndarray[Any, Any]) -> int:
        with run.truth.region("rollout"):
            logits = policy(torch.as_tensor(state).unsqueeze(0))
            return int(torch.distributions.Categorical(logits=logits).sample())

    run.get_ready()
    with run.truth.loop():
        for _ in range(EPISODES):
            states, actions = [], []
            state = np.zeros(STATES, np.float32)
            for _ in range(HORIZON):
                action = act(state)
                with run.truth.region("host"):
                    states.append(state)
                    actions.append(action)
                    for _ in range(60):
                        state = np.tanh(weights @ state + 0.1 * action)
            with run.truth.region("prepare"):
                observed, taken = torch.as_tensor(np.array(states)), torch.as_tensor(actions)
            with run.truth.region("forward"):
                loss = -torch.distributions.Categorical(logits=policy(observed)).log_prob(taken).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            run.truth.stepped()


def actor_critic(run: TorchRun) -> None:
    """PPO with two models, which act in inference mode. Environments compute or sleep for 0.2 to 3 ms."""
    actor, critic, draw = _network(ACTIONS), _network(1), random.Random(1)
    optimizer = torch.optim.AdamW([*actor.parameters(), *critic.parameters()], 3e-4)
    run.get_ready()
    with run.truth.loop():
        for _ in range(25):
            observed, taken, values = list[torch.Tensor](), list[torch.Tensor](), list[torch.Tensor]()
            states = torch.zeros(8, STATES)
            for number in range(64):
                with run.truth.region("rollout"), torch.inference_mode():
                    actions = torch.distributions.Categorical(logits=actor(states)).sample()
                    value = critic(states).squeeze(-1)
                    first = int(actions[0])
                with run.truth.region("host"):
                    (busy if number % 2 else time.sleep)(draw.uniform(0.0002, 0.003))
                    for kept, new in (observed, states), (taken, actions), (values, value):
                        kept.append(new)
                    states = torch.from_numpy(np.random.default_rng(first).random((8, STATES), np.float32))
            for _ in range(4):
                with run.truth.region("prepare"):
                    batch, targets, goals = (torch.cat(rows).clone() for rows in (observed, taken, values))
                with run.truth.region("forward"):
                    loss = cross_entropy(actor(batch), targets) + mse_loss(critic(batch).squeeze(-1), goals)
                optimizer.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(actor.parameters(), 0.5)
                optimizer.step()
                run.truth.stepped()


def _network(outputs: int) -> nn.Sequential:
    hidden = [nn.Linear(STATES, 512), nn.Tanh(), nn.Linear(512, 512), nn.Tanh()]
    return nn.Sequential(*hidden, nn.Linear(512, outputs))


def stable_baselines(run: TorchRun) -> None:
    """stable-baselines3's PPO."""
    from stable_baselines3 import PPO

    shape = {"net_arch": [256, 256]}
    learner = PPO("MlpPolicy", Walk(run), n_steps=256, batch_size=64, n_epochs=4, device="cpu", policy_kwargs=shape)
    run.slow_down(learner.policy)
    run.truth.wrap(learner.policy, "forward", "rollout")
    run.truth.wrap(learner.policy, "evaluate_actions", "forward")
    learner.policy.optimizer.register_step_post_hook(lambda *_: run.truth.stepped())
    run.get_ready()
    with run.truth.loop():
        learner.learn(256 * 12)
