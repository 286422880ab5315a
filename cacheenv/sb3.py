"""Stable-Baselines3: the batched environment as an SB3 `VecEnv`.

    from stable_baselines3 import PPO
    from cacheenv.sb3 import as_vec_env
    model = PPO("MlpPolicy", as_vec_env("cacheenv/Routing-v0", n_envs=16)).learn(100_000)

Stable-Baselines3 is an optional dependency and is imported when :func:`as_vec_env` is called.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gymnasium.vector import AutoresetMode

from cacheenv.envs.registration import IDS
from cacheenv.envs.vector import CacheVectorEnv
from cacheenv.errors import InputError, suggestion

if TYPE_CHECKING:
    from cacheenv.envs.sb3_adapter import SB3VecEnv


def as_vec_env(env_or_id: CacheVectorEnv | str, n_envs: int = 1, **kwargs: Any) -> SB3VecEnv:
    """An SB3 `VecEnv` of N worlds that are stepped by one compiled call.

    Args:
        env_or_id: A registered id, with or without the prefix `cacheenv:`, or a :class:`CacheVectorEnv` that resets in
            the same step (`autoreset_mode="SameStep"`).
        n_envs: Number of worlds, where an id is given.
        **kwargs: Arguments of :class:`CacheVectorEnv`, where an id is given.

    Returns:
        The adapter. World i is seeded with `seed + i`. Infos are empty but for worlds whose episode is over.

    Raises:
        InputError: Without Stable-Baselines3, for an unknown id, and for a batch that does not reset in the same step.
    """
    try:
        from cacheenv.envs.sb3_adapter import SB3VecEnv
    except ModuleNotFoundError as problem:
        if (problem.name or "").partition(".")[0] not in ("stable_baselines3", "torch"):
            raise
        raise InputError(
            f"as_vec_env: needs {problem.name}; install the extra 'agents' (pip install 'cacheenv[agents]')"
        ) from None
    if isinstance(env_or_id, CacheVectorEnv):
        if kwargs:
            raise InputError(f"as_vec_env: {', '.join(kwargs)}: arguments go to the environment that is handed in")
        if env_or_id.autoreset_mode != AutoresetMode.SAME_STEP:
            raise InputError("as_vec_env: expected a batch with autoreset_mode='SameStep'")
        return SB3VecEnv(env_or_id)
    name = str(env_or_id).removeprefix("cacheenv:")
    if name not in IDS:
        raise InputError(f"as_vec_env: unknown id '{name}'{suggestion(name, IDS)}; known: {', '.join(IDS)}")
    settings = {**IDS[name], **kwargs, "autoreset_mode": AutoresetMode.SAME_STEP}
    return SB3VecEnv(CacheVectorEnv(n_envs, **settings))
