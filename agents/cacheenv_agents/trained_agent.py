"""A trained agent as a policy: observation from the view, network, best legal action. Needs no torch."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from cacheenv.envs.actions import ActionCodec
from cacheenv.envs.layout import ObservationLayout
from cacheenv.envs.registration import IDS
from cacheenv.errors import InputError
from cacheenv.policy import View
from cacheenv.sim.view.columns import DECISION_ROUTE
from cacheenv_agents.actions import FORBIDDEN, best_move, best_route
from cacheenv_agents.network import Network

FORMAT = 1
DESCRIPTION_FILE = "agent.json"
WEIGHTS_FILE = "policy.npz"


class TrainedAgent:
    """A trained agent with `act(view, mask)`, deterministic.

    Args:
        description: What was trained: see :func:`cacheenv_agents.export.describe`.
        network: The policy network.
        name: Name in messages.
    """

    needs_running = False

    def __init__(self, description: dict[str, Any], network: Network, name: str) -> None:
        self.description = description
        self.network = network
        self.name = name
        self.codec = codec_of(description)
        self.migrates = self.codec.moves
        self.requires = dict(description["requires"])
        self.layout = ObservationLayout(self.codec)
        self._observation = np.zeros(len(self.layout), np.float32)
        self._checked = False

    def act(self, view: View, mask: np.ndarray) -> int:
        """The action with the largest logit among the legal ones.

        Args:
            view: What is known at the decision.
            mask: Legal actions of the decision, bool: of the routing block at an arrival, else of the migration block.

        Returns:
            Action number within the block.

        Raises:
            InputError: The cluster has another shape than the one the agent was trained on.
        """
        if not self._checked:
            self._check(view)
        logits, count = self.logits(view), self.codec.route_count
        routing = view.cluster[0].decision == DECISION_ROUTE
        if not self.codec.factored:
            block = logits[:count] if routing else logits[count:]
            return int(np.argmax(np.where(mask, block, FORBIDDEN)))
        return best_route(logits, mask, self.codec) if routing else best_move(logits, mask, self.codec)

    def observe(self, view: View) -> np.ndarray:
        """The flat observation of a view: float32 (features,), overwritten by the next call."""
        return self.layout.fill(view, self._observation)

    def logits(self, view: View) -> np.ndarray:
        """Raw outputs of the network at a view."""
        return self.network(self.observe(view))

    def _check(self, view: View) -> None:
        """Refuses a cluster of another shape."""
        cluster, trained = view.cluster[0], self.codec
        have = {"prefill instances": int(cluster.num_prefill), "decode instances": int(cluster.num_decode)}
        want = {"prefill instances": trained.num_prefill, "decode instances": trained.num_decode}
        if trained.moves:
            have["candidates"], want["candidates"] = int(cluster.num_candidates), trained.candidates
        for what, count in want.items():
            if have[what] != count:
                raise InputError(
                    f"policy {self.name}: the agent was trained for {count} {what}, but the cluster has {have[what]}"
                )
        self._checked = True


def agent_folder(path: str) -> Path:
    """The folder with an agent's files: `path` itself, or the newest checkpoint of an unfinished training in it."""
    folder = Path(path)
    if (folder / DESCRIPTION_FILE).is_file():
        return folder
    checkpoints = sorted(folder.glob(f"checkpoints/*/{DESCRIPTION_FILE}"))
    if checkpoints:
        return checkpoints[-1].parent
    what = "not a folder" if folder.is_file() else "no such folder" if not folder.is_dir() else "no agent in it"
    raise InputError(f"policy agent:{path}: {what}; expected the output folder of 'cacheenv train'")


def load_agent(path: str) -> TrainedAgent:
    """The agent of a folder.

    Raises:
        InputError: No agent there, or files of another version of this package.
    """
    folder = agent_folder(path)
    try:
        description = json.loads((folder / DESCRIPTION_FILE).read_text(encoding="utf-8"))
        with np.load(folder / WEIGHTS_FILE, allow_pickle=False) as arrays:
            count = sum(name.startswith("weight_") for name in arrays.files)
            weights = [(arrays[f"weight_{k}"], arrays[f"bias_{k}"]) for k in range(count)]
        version = description["format"]
        if version == FORMAT:
            _check_features(description, path)
            return TrainedAgent(description, Network(weights, description["activation"]), f"agent:{path}")
    except InputError:
        raise
    except (OSError, ValueError, KeyError, TypeError, EOFError) as problem:
        raise InputError(f"policy agent:{path}: files cannot be read ({problem})") from None
    raise InputError(f"policy agent:{path}: expected files of format {FORMAT}, got {version!r}")


def codec_of(description: dict[str, Any]) -> ActionCodec:
    """The action space that an agent was trained in."""
    kinds = IDS[description["env_id"]]
    return ActionCodec(
        description["num_prefill"],
        description["num_decode"],
        description["candidates"],
        kinds["routes"],
        kinds["moves"],
        description["action_format"] == "factored",
    )


def _check_features(description: dict[str, Any], path: str) -> None:
    """An agent of a version with other features would see nonsense."""
    if description["env_id"] not in IDS:
        raise InputError(f"policy agent:{path}: unknown environment {description['env_id']!r}")
    if ObservationLayout(codec_of(description)).names != description["observation"]:
        raise InputError(f"policy agent:{path}: trained with other observation features; train it again")
