"""An agent as a policy: observation from the view, network in NumPy, best legal action. Needs no torch."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from cacheenv.envs.actions import ActionCodec
from cacheenv.envs.features import TABLES, Feature, fill_observation, flat_scales
from cacheenv.envs.registration import IDS
from cacheenv.errors import InputError
from cacheenv.policy import View
from cacheenv.sim.core.jit import jit
from cacheenv.sim.view.columns import DECISION_ROUTE
from cacheenv_agents.actions import FORBIDDEN, best_move, best_route

FORMAT = 1
DESCRIPTION_FILE = "agent.json"
WEIGHTS_FILE = "policy.npz"


@jit
def _observe(view, scale, tables, out):  # type: ignore[no-untyped-def]
    """Python entry of the environment's own feature code."""
    fill_observation(view, scale, tables, out)


def relu(values: np.ndarray) -> np.ndarray:
    """max(0, x)."""
    return np.maximum(values, 0.0)


ACTIVATIONS: dict[str, Callable[[np.ndarray], np.ndarray]] = {"tanh": np.tanh, "relu": relu}


class Network:
    """A multi-layer perceptron on the CPU.

    Args:
        weights: `(W, b)` of each layer, W of shape (outputs, inputs), float32.
        activation: `tanh` or `relu`, between the layers.
    """

    def __init__(self, weights: list[tuple[np.ndarray, np.ndarray]], activation: str) -> None:
        self.layers = [(np.ascontiguousarray(w.T, np.float32), np.asarray(b, np.float32)) for w, b in weights]
        self.activation = ACTIVATIONS[activation]

    def __call__(self, observation: np.ndarray) -> np.ndarray:
        """Logits, float32 (outputs,), of an observation, float32 (inputs,)."""
        values = observation
        for w, b in self.layers[:-1]:
            values = self.activation(values @ w + b)
        w, b = self.layers[-1]
        return values @ w + b


class AgentActor:
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
        kinds = IDS[description["env_id"]]
        self.codec = ActionCodec(
            description["num_prefill"],
            description["num_decode"],
            description["candidates"],
            kinds["routes"],
            kinds["moves"],
            description["action_format"] == "factored",
        )
        self.migrates = self.codec.moves
        self.requires = dict(description["requires"])
        self._tables = (3 if self.codec.routes else 0) + 4 + (8 if self.codec.moves else 0)
        rows = observation_rows(self.codec)
        self._scales = flat_scales([feature for _, feature in rows])
        self._observation = np.zeros(len(rows), np.float32)
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
        _observe(view, self._scales, self._tables, self._observation)
        return self._observation

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


def load_actor(path: str) -> AgentActor:
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
            return AgentActor(description, Network(weights, description["activation"]), f"agent:{path}")
    except InputError:
        raise
    except (OSError, ValueError, KeyError, TypeError, EOFError) as problem:
        raise InputError(f"policy agent:{path}: files cannot be read ({problem})") from None
    raise InputError(f"policy agent:{path}: expected files of format {FORMAT}, got {version!r}")


def observation_rows(codec: ActionCodec) -> list[tuple[str, Feature]]:
    """(name, feature) of the flat observation's numbers for a cluster's shape, as the environment orders them."""
    counts = {"cluster": 1}
    if codec.routes:
        counts |= {"request": 1, "prefill": codec.num_prefill}
    counts["decode"] = codec.num_decode
    if codec.moves:
        counts["candidate"] = codec.num_decode * codec.candidates
    return [
        (f"{table}[{row}].{feature.name}" if count > 1 else f"{table}.{feature.name}", feature)
        for table, count in counts.items()
        for row in range(count)
        for feature in TABLES[table]
    ]


def _check_features(description: dict[str, Any], path: str) -> None:
    """An agent of a version with other features would see nonsense."""
    kinds = IDS.get(description["env_id"])
    if kinds is None:
        raise InputError(f"policy agent:{path}: unknown environment {description['env_id']!r}")
    shape = (description["num_prefill"], description["num_decode"], description["candidates"])
    codec = ActionCodec(*shape, kinds["routes"], kinds["moves"], False)
    if [name for name, _ in observation_rows(codec)] != description["observation"]:
        raise InputError(f"policy agent:{path}: trained with other observation features; train it again")
