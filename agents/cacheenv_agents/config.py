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
from cacheenv.errors import InputError, suggestion
from cacheenv.scenario.schema import ConfigError, Rule, build, choice, integer, mapping, number, read_yaml_mapping

ALGORITHMS = ("ppo", "maskable_ppo")
ACTIVATIONS = ("tanh", "relu")
ENV_KEYS = ("scenario", "overrides", "action_format", "reward", "horizon_s")
POLICY_KEYS = ("net_arch", "activation_fn", "ortho_init")
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
class NormalizeRule(Rule):
    """`false`, or a mapping with `norm_reward`; observations are already normalised by the environment."""

    def check(self, value: Any, place: str) -> Any:
        """The value, as the Zoo writes it."""
        if value is False:
            return False
        wanted = "expected false or {norm_obs: false, norm_reward: true}"
        if not isinstance(value, Mapping):
            raise ConfigError(f"{place}: {wanted}, got {value!r} (observations are normalised already)", place)
        for key in value:
            if key not in ("norm_obs", "norm_reward"):
                known = ("norm_obs", "norm_reward")
                raise ConfigError(f"unknown key {place}.{key}{suggestion(key, known)}; {wanted}", f"{place}.{key}")
        if value.get("norm_obs") is not False or not isinstance(value.get("norm_reward"), bool):
            raise ConfigError(f"{place}: {wanted}, got {dict(value)!r} (observations are normalised already)", place)
        return dict(value)


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
        default=False, metadata={"rule": NormalizeRule("mapping", "running normalisation of the reward")}
    )
    policy_kwargs: Mapping[str, Any] = mapping("net_arch, activation_fn (tanh or relu), ortho_init")
    env_kwargs: Mapping[str, Any] = mapping("arguments of gym.make: scenario, overrides, action_format, reward")


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
        env_kwargs["overrides"] = {**_dotted(env_kwargs.get("overrides") or {}), **overrides}
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
    if algo not in ALGORITHMS:
        hint = suggestion(str(algo), ALGORITHMS)
        got = "nothing" if algo is None else repr(algo)
        raise InputError(f"{path}: algo: expected one of {', '.join(ALGORITHMS)}, got {got}{hint}")
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
        _check_keys(parameters.env_kwargs, ENV_KEYS, f"{place}.env_kwargs".lstrip("."))
        _check_policy(parameters.policy_kwargs, f"{place}.policy_kwargs".lstrip("."))
    except ConfigError as problem:
        raise InputError(f"{source}: {problem}") from None
    samples = parameters.n_envs * parameters.n_steps
    if samples % parameters.batch_size:
        raise InputError(
            f"{source}: batch_size: expected a divisor of n_envs * n_steps = {samples}, got {parameters.batch_size}"
        )
    overrides = parameters.env_kwargs.get("overrides")
    if overrides is not None and not isinstance(overrides, Mapping):
        raise InputError(f"{source}: env_kwargs.overrides: expected a mapping, got {overrides!r}")
    return parameters


def _check_keys(values: Mapping[str, Any], known: tuple[str, ...], place: str) -> None:
    for key in values:
        if key not in known:
            hint = suggestion(key, known) or f"; known: {', '.join(known)}"
            raise ConfigError(f"unknown key {place}.{key}{hint}", f"{place}.{key}")


def _check_policy(values: Mapping[str, Any], place: str) -> None:
    """Layer sizes and activation; text is never evaluated."""
    _check_keys(values, POLICY_KEYS, place)
    layers = values.get("net_arch", [])
    parts = list(layers.values()) if isinstance(layers, Mapping) else [layers]
    if isinstance(layers, Mapping):
        _check_keys(layers, ("pi", "vf"), f"{place}.net_arch")
    for part in parts:
        whole = isinstance(part, list) and all(isinstance(size, int) and not isinstance(size, bool) for size in part)
        if not whole or any(size < 1 for size in part):
            raise ConfigError(f"{place}.net_arch: expected layer sizes such as [128, 128], got {layers!r}", place)
    activation = values.get("activation_fn", "tanh")
    if activation not in ACTIVATIONS:
        raise ConfigError(f"{place}.activation_fn: expected {' or '.join(ACTIVATIONS)}, got {activation!r}", place)
    if not isinstance(values.get("ortho_init", True), bool):
        raise ConfigError(f"{place}.ortho_init: expected true or false, got {values['ortho_init']!r}", place)


def _dotted(tree: Mapping[str, Any], place: str = "") -> dict[str, Any]:
    """Leaves of nested or dotted overrides by dotted key."""
    leaves: dict[str, Any] = {}
    for key, value in tree.items():
        if isinstance(value, Mapping) and value:
            leaves.update(_dotted(value, f"{place}{key}."))
        else:
            leaves[f"{place}{key}"] = value
    return leaves


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
