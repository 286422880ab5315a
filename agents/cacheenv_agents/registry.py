"""`agent:PATH` as a policy name: what the entry point of group `cacheenv.policies` resolves to."""

from __future__ import annotations

from dataclasses import replace

from cacheenv.errors import InputError
from cacheenv.policy import PolicyBundle, make_policy

PREFIX = "agent:"


class Provider:
    """Makes trained agents by the folder in which they were trained."""

    def names(self) -> list[str]:
        """The prefix that this provider handles."""
        return [PREFIX]

    def make(self, name: str, **params: float) -> PolicyBundle:
        """The agent of `agent:PATH`, with the router or rescheduler of its training where it decides only a part.

        Raises:
            InputError: No agent there, or parameters (an agent has none).
        """
        from cacheenv_agents.trained_agent import load_agent

        path = name.removeprefix(PREFIX)
        if not name.startswith(PREFIX) or not path:
            raise InputError(f"policy {name}: expected agent:PATH, the output folder of 'cacheenv train'")
        if params:
            raise InputError(f"policy {name}: agents have no parameters, got {', '.join(params)}")
        actor = load_agent(path)
        bundle = PolicyBundle(name, actor=actor)
        inner = actor.description["inner_policy"]
        if inner is None:
            return bundle
        made = make_policy(inner)
        if actor.codec.routes:
            return replace(bundle, rescheduler=made.rescheduler)
        return replace(bundle, router=made.router, decode_choice=made.decode_choice, admission=made.admission)


provider = Provider()
