"""The groups of a cluster's instances, however they are written down, and what holds where they meet other keys.

`cluster.instances` lists groups; what a group does not say is as in `cluster.prefill`, `cluster.decode` and
`cluster.network`. Without it there are two groups: `cluster.prefill.count` and `cluster.decode.count` equal instances.
Prefill instances are numbered in the order of their groups, decode instances likewise.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from cacheenv.errors import ConfigError
from cacheenv.physics import load_link
from cacheenv.scenario.sections import (
    GROUP_KEYS,
    GROUP_LINK_KEYS,
    ClusterConfig,
    DecodeConfig,
    NetworkConfig,
    PrefillConfig,
)

GROUPS = "cluster.instances"
_RULE = next(item.metadata["rule"] for item in fields(ClusterConfig) if item.name == "instances")


@dataclass(frozen=True)
class Group:
    """Equal instances.

    Attributes:
        role: `prefill` or `decode`.
        name: What it is called in messages.
        own: Keys that it has for itself.
        place: Dotted place of these; empty for a group that is written in the short form.
        section: All keys of the role, those of its own put in.
        network: All keys of the network, likewise.
    """

    role: str
    name: str
    own: Mapping[str, Any]
    place: str
    section: PrefillConfig | DecodeConfig
    network: NetworkConfig

    @property
    def count(self) -> int:
        """Instances."""
        return self.section.count

    def place_of(self, key: str) -> str:
        """Where the value of a key stands, dotted."""
        if key in self.own:
            return f"{self.place}.{key}"
        return f"cluster.{'network' if key in GROUP_LINK_KEYS else self.role}.{key}"

    def link(self) -> tuple[float, float]:
        """(bytes a second, set-up in seconds) of each instance's NIC.

        Raises:
            InputError: An unknown link.
        """
        link = load_link(self.network.link)
        rate, setup_s = self.network.nic_gbytes_per_s, self.network.setup_s
        return (link.gbytes_per_s if rate is None else rate) * 1e9, link.setup_s if setup_s is None else setup_s


def groups_of(cluster: ClusterConfig) -> list[Group]:
    """The groups of a cluster, prefill first."""
    short: list[Mapping[str, Any]] = [{"role": role} for role in GROUP_KEYS]
    found = []
    for role in GROUP_KEYS:
        for number, keys in enumerate(cluster.instances or short):
            if keys["role"] == role:
                found.append(_group(cluster, role, number, keys))
    return found


def _group(cluster: ClusterConfig, role: str, number: int, keys: Mapping[str, Any]) -> Group:
    """One group with all its keys; a link of its own comes with its own rate and set-up."""
    own = {key: value for key, value in keys.items() if key not in ("role", "name")}
    links = {key: value for key, value in own.items() if key in GROUP_LINK_KEYS}
    if "link" in links:
        links = {"nic_gbytes_per_s": None, "setup_s": None, **links}
    section: Any = cluster.prefill if role == "prefill" else cluster.decode
    return Group(
        role=role,
        name=keys.get("name", f"{role} {number}" if own else role),
        own=own,
        place=f"{GROUPS}[{number}]",
        section=replace(section, **{key: value for key, value in own.items() if key not in GROUP_LINK_KEYS}),
        network=replace(cluster.network, **links),
    )


def with_counts(base: Mapping[str, Any], changes: Mapping[str, Any], tree: Mapping[str, Any]) -> dict[str, Any]:
    """`tree` with the `count` of its sections as the groups of `cluster.instances` have it.

    Args:
        base: Keys before the changes.
        changes: What is changed.
        tree: Both together.

    Raises:
        ConfigError: A `count` that says something else, no group of a role, or a group with a wrong key.
    """
    cluster = tree.get("cluster")
    groups = cluster.get("instances") if isinstance(cluster, Mapping) else None
    if not groups:
        return dict(tree)
    groups = _RULE.check(groups, GROUPS)
    new = _at(changes, "cluster", "instances") is not None
    filled: dict[str, Any] = dict(cluster)  # type: ignore[arg-type]
    for role in GROUP_KEYS:
        total = sum(group["count"] for group in groups if group["role"] == role)
        place = f"cluster.{role}.count"
        said = [_at(changes, "cluster", role, "count"), None if new else _at(base, "cluster", role, "count")]
        if any(count not in (None, total) for count in said):
            raise ConfigError(f"{place}: {GROUPS} has {total} {role} instances; change the counts of its groups", place)
        if total == 0:
            raise ConfigError(f"{GROUPS}: expected at least one group with role {role}", GROUPS)
        if isinstance(filled.get(role, {}), Mapping):
            filled[role] = {**filled.get(role, {}), "count": total}
    return {**tree, "cluster": filled}


def _at(tree: Any, *path: str) -> Any:
    """A value in nested mappings; None where there is none."""
    for key in path:
        tree = tree.get(key) if isinstance(tree, Mapping) else None
    return tree


def for_all_groups(cluster: ClusterConfig, changes: Mapping[str, Any]) -> dict[str, Any]:
    """Changes of common keys that hold for all instances: the groups lose what they had of these for themselves.

    Args:
        cluster: The cluster that they change.
        changes: Dotted keys; `max:KEY` raises a number to at least the value, of each group that is below it too.

    Returns:
        `cluster.instances` as it has to be; empty where no group has such a key.
    """
    groups = [dict(group) for group in cluster.instances]
    for key, value in changes.items():
        parts = key.removeprefix("max:").split(".")
        if len(parts) != 3 or parts[0] != "cluster":
            continue
        for group in groups:
            links = parts[1] == "network" and parts[2] in GROUP_LINK_KEYS
            if parts[2] in group and (parts[1] == group["role"] or links) and parts[2] != "count":
                if not key.startswith("max:"):
                    del group[parts[2]]
                elif group[parts[2]] is None or group[parts[2]] < value:
                    group[parts[2]] = value
    return {GROUPS: groups} if groups != list(cluster.instances) else {}
