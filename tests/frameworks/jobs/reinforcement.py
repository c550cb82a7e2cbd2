"""Reinforcement learning: many small forward passes without gradients, then updates."""

from typing import Any

import gymnasium
import numpy as np
import torch
from torch import nn

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
