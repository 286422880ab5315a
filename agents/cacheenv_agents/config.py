"""Training configuration: YAML with the key names of the SB3 Zoo, read strictly and never evaluated.

A file holds one environment id with its hyper-parameters, as in the Zoo's own files, and `algo` beside it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cacheenv.envs.registration import IDS
from cacheenv.errors import ConfigError, InputError, suggestion
from cacheenv.files.yaml_text import read_yaml_mapping
from cacheenv.scenario.keys import flat
from cacheenv.scenario.schema import KeysRule, Rule, build, choice, integer, mapping, number

ALGORITHMS = ("ppo", "maskable_ppo")
ACTIVATIONS = ("tanh", "relu")
LINEAR = "lin_"


@dataclass(frozen=True)
class ScheduleRule(Rule):
    """A number, or `lin_NUMBER`: a value that falls linearly to 0 at the end of the training."""

    def check(self, value: Any, place: str) -> Any:
        """The number, or the text with the number behind `lin_` checked."""
        if not (isinstance(value, str) and value.startswith(LINEAR)):
            return super().check(value, place)
        try:
            start = float(value.removeprefix(LINEAR))
        except ValueError:
            raise ConfigError(f"{place}: expected a number or {LINEAR}NUMBER, got '{value}'", place) from None
        super().check(start, place)
        return value


def schedule(default: float | str, doc: str, **bounds: Any) -> Any:
    """Field with a number or a `lin_` schedule."""
    return dataclasses.field(default=default, metadata={"rule": ScheduleRule("float", doc, **bounds)})


@dataclass(frozen=True)
class NormalizeRule(KeysRule):
    """`false`, or a mapping with `norm_reward`; observations are already normalised by the environment."""

    def check(self, value: Any, place: str) -> Any:
        """The value, as the Zoo writes it."""
        if value is False:
            return False
        wanted = "expected false or {norm_obs: false, norm_reward: true}"
        if not isinstance(value, Mapping):
            raise ConfigError(f"{place}: {wanted}, got {value!r} (observations are normalised already)", place)
        checked = super().check(value, place)
        if checked.get("norm_obs") is not False or "norm_reward" not in checked:
            raise ConfigError(f"{place}: {wanted}, got {checked!r} (observations are normalised already)", place)
        return checked


@dataclass(frozen=True)
class LayersRule(Rule):
    """Layer sizes of a network, or a mapping with those of the policy (`pi`) and of the value network (`vf`)."""

    def check(self, value: Any, place: str) -> Any:
        """The list or the mapping; text is never evaluated."""
        if isinstance(value, Mapping):
            return KeysRule("mapping", self.doc, keys={"pi": self, "vf": self}).check(value, place)
        whole = isinstance(value, list) and all(isinstance(size, int) and not isinstance(size, bool) for size in value)
        if not whole or any(size < 1 for size in value):
            raise ConfigError(f"{place}: expected layer sizes such as [128, 128], got {value!r}", place)
        return value


NORMALIZE_KEYS = {
    "norm_obs": Rule("bool", "always false: observations are normalised already"),
    "norm_reward": Rule("bool", "divide the reward by a running standard deviation of the return"),
}
POLICY_KEYS = {
    "net_arch": LayersRule("layers", "sizes of the hidden layers"),
    "activation_fn": Rule("choice", "activation function", choices=ACTIVATIONS),
    "ortho_init": Rule("bool", "orthogonal initialisation"),
}
#: Arguments of the environment, which checks their values itself.
ENV_KEYS = {
    "scenario": Rule("any", "name, YAML file or mapping"),
    "overrides": Rule("mapping", "changes of the scenario", optional=True),
    "action_format": Rule("any", "joint or factored"),
    "reward": Rule("any", "reward function"),
    "horizon_s": Rule("any", "end of an episode, s"),
}


@dataclass(frozen=True)
class Hyperparameters:
    """Keys of the Zoo for PPO; defaults are those of Stable-Baselines3 where it has them."""

    n_envs: int = integer(32, "worlds side by side", low=1, high=4096)
    n_timesteps: int = integer(1_000_000, "decisions of all worlds together", low=1)
    policy: str = choice("MlpPolicy", ("MlpPolicy",), "network: a multi-layer perceptron on the flat observation")
    n_steps: int = integer(128, "decisions of each world a rollout", low=1)
    batch_size: int = integer(1024, "samples a gradient step", low=2)
    n_epochs: int = integer(4, "passes over a rollout", low=1)
    gamma: float = number(0.99, "discount a decision", above=0, high=1)
    gae_lambda: float = number(0.95, "lambda of the advantage estimate", low=0, high=1)
    ent_coef: float = number(0.0, "weight of the entropy bonus", low=0)
    vf_coef: float = number(0.5, "weight of the value loss", low=0)
    max_grad_norm: float = number(0.5, "gradients are clipped to this norm", above=0)
    learning_rate: float | str = schedule(3e-4, "step size, or lin_NUMBER", above=0)
    clip_range: float | str = schedule(0.2, "clipping of the policy ratio, or lin_NUMBER", above=0)
    normalize: bool | dict[str, bool] = dataclasses.field(
        default=False,
        metadata={"rule": NormalizeRule("mapping", "running normalisation of the reward", keys=NORMALIZE_KEYS)},
    )
    policy_kwargs: Mapping[str, Any] = mapping("of the network: net_arch, activation_fn, ortho_init", POLICY_KEYS)
    env_kwargs: Mapping[str, Any] = mapping(
        "arguments of gym.make: scenario, overrides, action_format, reward", ENV_KEYS
    )


@dataclass(frozen=True)
class TrainingConfig:
    """What is trained where.

    Attributes:
        algo: `ppo` or `maskable_ppo`.
        env_id: Registered id.
        seed: Seed of networks, sampling and worlds.
        parameters: Hyper-parameters.
    """

    algo: str
    env_id: str
    seed: int
    parameters: Hyperparameters

    def to_dict(self) -> dict[str, Any]:
        """The file that `load_config` takes back."""
        return {"algo": self.algo, "seed": self.seed, self.env_id: dataclasses.asdict(self.parameters)}

    def with_scenario(self, scenario: str | None, overrides: Mapping[str, Any]) -> TrainingConfig:
        """Another scenario and further overrides (dotted keys); the file's overrides go with its scenario."""
        env_kwargs = dict(self.parameters.env_kwargs)
        if scenario is not None:
            env_kwargs["scenario"] = scenario
        env_kwargs["overrides"] = {**flat(env_kwargs.get("overrides") or {}), **overrides}
        return dataclasses.replace(self, parameters=dataclasses.replace(self.parameters, env_kwargs=env_kwargs))

    def with_values(self, **values: Any) -> TrainingConfig:
        """Some hyper-parameters changed, checked again."""
        tree = {**dataclasses.asdict(self.parameters), **values}
        return dataclasses.replace(self, parameters=checked(tree, "override"))


def load_config(path: str | Path) -> TrainingConfig:
    """Reads a training configuration.

    Raises:
        InputError: One line naming the file, the key and what was expected.
    """
    tree = read_yaml_mapping(Path(path))
    algo, seed = tree.pop("algo", None), tree.pop("seed", 0)
    try:
        Rule("choice", "algorithm", choices=ALGORITHMS).check(algo, "algo")
    except ConfigError as problem:
        raise InputError(f"{path}: {problem}") from None
    if isinstance(seed, bool) or not isinstance(seed, int) or not 0 <= seed < 2**32:
        raise InputError(f"{path}: seed: expected an integer >= 0 and < 2**32, got {seed!r}")
    for key in tree:
        if key not in IDS:
            known = (*IDS, "algo", "seed")
            raise InputError(f"{path}: unknown key {key}{suggestion(key, known)}; known: {', '.join(known)}")
    if len(tree) != 1:
        raise InputError(f"{path}: expected one environment id ({', '.join(IDS)}), got {len(tree)}")
    env_id, values = next(iter(tree.items()))
    return TrainingConfig(algo, env_id, seed, checked(values, str(path), env_id))


def checked(values: Any, source: str, place: str = "") -> Hyperparameters:
    """Hyper-parameters from a mapping, every value checked."""
    try:
        parameters: Hyperparameters = build(Hyperparameters, values, place)
    except ConfigError as problem:
        raise InputError(f"{source}: {problem}") from None
    samples = parameters.n_envs * parameters.n_steps
    if samples % parameters.batch_size:
        raise InputError(
            f"{source}: batch_size: expected a divisor of n_envs * n_steps = {samples}, got {parameters.batch_size}"
        )
    return parameters


class LinearSchedule:
    """Falls from `start` to 0 over the training; a class, so that a saved model finds it again."""

    def __init__(self, start: float) -> None:
        self.start = start

    def __call__(self, progress_remaining: float) -> float:
        """The value where `progress_remaining` (1 at the start, 0 at the end) is left."""
        return self.start * progress_remaining


def as_schedule(value: float | str) -> Any:
    """A number as it is, `lin_NUMBER` as a schedule."""
    return LinearSchedule(float(value.removeprefix(LINEAR))) if isinstance(value, str) else value
