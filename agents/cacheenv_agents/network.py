"""The policy network of a trained agent in NumPy."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np


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
