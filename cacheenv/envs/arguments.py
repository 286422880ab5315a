"""What a caller says about an environment, single or batched, and its check."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from cacheenv.envs.layout import FORMS
from cacheenv.errors import InputError, suggestion
from cacheenv.scenario import Scenario, load_scenario
from cacheenv.scenario.sections import REWARD_KINDS

ACTION_FORMATS = ("joint", "factored")


@dataclass(frozen=True)
class EnvArguments:
    """The arguments that :class:`cacheenv.envs.env.CacheEnv`, which describes them, shares with its batched form."""

    routes: bool
    moves: bool
    scenario: str | Mapping[str, Any] | Scenario
    overrides: Mapping[str, Any] | None
    action_format: str
    observation: str
    reward: str | None
    horizon_s: float | None

    def checked_scenario(self) -> Scenario:
        """The scenario with reward and horizon in it.

        Raises:
            InputError: For an unknown scenario, key or choice; the message names the place.
        """
        resolved = load_scenario(self.scenario, self.overrides)
        if self.horizon_s is not None:
            resolved = resolved.with_overrides({"horizon_s": self.horizon_s})
        if self.reward is not None:
            _check_choice("reward", self.reward, REWARD_KINDS)
            resolved = resolved.with_overrides({"reward.kind": self.reward})
        _check_choice("observation", self.observation, FORMS)
        _check_choice("action_format", self.action_format, ACTION_FORMATS)
        return resolved


def _check_choice(name: str, value: Any, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise InputError(f"{name}: expected one of {', '.join(allowed)}, got {value!r}{suggestion(value, allowed)}")
