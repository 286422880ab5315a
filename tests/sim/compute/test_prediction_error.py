"""The `star` predictor errs as the STAR paper's does, seen through the views of a whole run."""

import numpy as np
import pytest

import cacheenv
from cacheenv.policy import DECISION_ROUTE

LONG_TOKENS = 30_000


class Watcher:
    """Routes in turn, never moves, and keeps what the views predict: (request, generated, predicted remaining)."""

    migrates = True

    def __init__(self) -> None:
        self.seen: list[tuple[int, int, float]] = []

    def act(self, view, mask):
        if view.cluster[0].decision != DECISION_ROUTE:
            rows = view.running[: view.cluster[0].num_running]
            rows = rows[(rows["generated_tokens"] >= 7900) & (rows["generated_tokens"] < 8100)]
            self.seen += [(row["request"], row["generated_tokens"], row["predicted_remaining_tokens"]) for row in rows]
            return len(mask) - 1
        request = view.request[0]
        self.seen.append((request["index"], 0, request["predicted_output_tokens"]))
        return int(request["index"]) % len(view.decode) * 2


@pytest.fixture(scope="module")
def errors() -> dict[int, np.ndarray]:
    """Absolute errors for outputs of 30,000 tokens and more: at the start, and after about 8,000 tokens."""
    watcher = Watcher()
    roomy = {"preset": "r1-distill-qwen-7b_1xH800", "capacity_tokens": 20_000_000}
    scenario = cacheenv.load_scenario("reasoning", {"cluster.decode.preset": roomy, "workload.rate_rps": 20.0})
    records = cacheenv.simulate(scenario, watcher, seed=1).requests
    request, generated, predicted = (np.array(column) for column in zip(*watcher.seen, strict=True))
    error = np.abs(predicted - (records["output_tokens"][request] - generated))
    long = records["output_tokens"][request] >= LONG_TOKENS
    return {0: error[long & (generated == 0)], 8000: error[long & (generated > 0)]}


@pytest.mark.parametrize(("generated", "published", "share"), [(0, 18_256, 0.05), (8000, 2929, 0.12)])
def test_mean_absolute_error_is_the_published_one(
    errors: dict[int, np.ndarray], generated: int, published: float, share: float
) -> None:
    assert len(errors[generated]) >= 200
    assert errors[generated].mean() == pytest.approx(published, rel=share)
