"""The planners: what they find, what they promise, that they leave the world alone, and that they cannot see ahead."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest
from tiny_cluster import Script, requests, run, tiny

from cacheenv.errors import InputError
from cacheenv.policy import PolicyBundle, make_policy, policy, route
from cacheenv.run.simulate import apply_requirements
from cacheenv.run.trials import _Copy
from cacheenv.testing import check_policy
from cacheenv_baselines.lookahead import Lookahead

K = [("k", at) for at in range(800)]


@policy
def greedy(view, rng, params):
    """The least forecast of the first token, of equal ones the first instance."""
    best, best_s = 0, 1e300
    for p in range(view.cluster[0].num_prefill):
        cost_s = view.prefill[p].backlog_s + view.prefill[p].prefill_s
        if cost_s < best_s:
            best, best_s = p, cost_s
    return route(view, best, 0, 0)


def planner(**params):
    values = {
        "horizon_s": np.inf, "future": "true", "routes": 0, "decodes": 1, "moves": 0, "on_track": 1.0, "samples": 2,
        "seed": 0,
    }  # fmt: skip
    return Lookahead(**{**values, **params})


def over(base, **params):
    """A bundle of a planner over compiled policies, by name or as a router."""
    bundle = make_policy(base) if isinstance(base, str) else PolicyBundle(base.name, router=base)
    parts = {kind: getattr(bundle, kind) for kind in ("router", "decode_choice", "admission", "rescheduler")}
    return PolicyBundle("look", **parts, actor=planner(**params))


class Recorder:
    """Asks another object, and keeps what it answers."""

    plans = True

    def __init__(self, inner):
        self.inner, self.actions = inner, []
        self.migrates = inner.migrates

    def attach(self, trials):
        self.inner.attach(trials)

    def act(self, view, mask):
        self.actions.append(self.inner.act(view, mask))
        return self.actions[-1]


class Replay:
    """Answers as another run did."""

    def __init__(self, actions, migrates=False):
        self.actions, self.migrates = list(actions), migrates

    def act(self, view, mask):
        return self.actions.pop(0)


def score(rows):
    """Met less violated less rejected, of those that came."""
    came = rows.arrival_s >= 0
    return int(np.sum(np.where(rows.slo_met[came] == 1, 1, -1)))


def trap():
    """A prefix, a long prompt, and two prompts that continue the prefix."""
    return tiny(prefill__count=2, slo__ttft_s=1.0), requests(
        [
            (0.0, K, 2),
            (10.0, 950, 2),
            (10.01, [*K, *[("c", at) for at in range(150)]], 2),
            (10.02, [*K, *[("d", at) for at in range(150)]], 2),
        ]
    )


def test_greedy_walks_into_the_trap_and_looking_ahead_does_not():
    """1 ms a token, TTFT 1 s. Instance 0 has the prefix of 800 tokens.

    Greedy sends the long prompt there (both are idle): until 10.95. The third prompt takes 0.94 + 0.15 s there and
    0.95 s cold on instance 1: it goes to 1 and ends in time. The fourth waits 0.93 s and takes 0.15 s on instance 0
    (1.08 s), and 0.94 + 0.95 s cold on instance 1: late. With the long prompt on instance 1 the last two take 0.15 and
    0.14 + 0.15 s on instance 0: all in time.
    """
    scenario, workload = trap()
    alone = run(scenario, workload, greedy).rows
    assert alone.prefill_instance.tolist() == [0, 0, 1, 0]
    assert alone.slo_met.tolist() == [1, 1, 1, 0]
    assert alone.ttft_s[3] == pytest.approx(1.08)
    ahead = run(scenario, workload, over(greedy, horizon_s=5.0)).rows
    assert ahead.prefill_instance.tolist() == [0, 1, 0, 0]
    assert ahead.slo_met.tolist() == [1, 1, 1, 1]
    assert ahead.ttft_s[2:] == pytest.approx([0.15, 0.29])


def test_a_horizon_before_the_loss_sees_nothing():
    """The fourth prompt is late at 11.02, 1.02 s after the long one is routed; before it all count as on track."""
    scenario, workload = trap()
    alone = run(scenario, workload, greedy).rows
    assert run(scenario, workload, over(greedy, horizon_s=0.5)).rows.tobytes() == alone.tobytes()


def test_no_future_cannot_see_the_trap():
    """Nobody comes any more: routing the long prompt to either instance is the same, and the base decides."""
    scenario, workload = trap()
    rows = run(scenario, workload, over(greedy, future="none")).rows
    assert rows.prefill_instance.tolist()[:2] == [0, 0]


def crowd(seed, count=8):
    """Prompts that share beginnings, a little more than two instances can serve in time."""
    draws = np.random.default_rng(seed)
    rows, now_s = [], 0.0
    for number in range(count):
        family = int(draws.integers(3))
        prompt = [("f", family, at) for at in range(int(draws.integers(40, 120)))]
        prompt += [("own", number, at) for at in range(int(draws.integers(1, 120)))]
        rows.append((now_s, prompt, int(draws.integers(2, 9))))
        now_s += float(draws.exponential(0.06))
    return requests(rows)


CROWDED = {"prefill__count": 2, "decode__count": 2, "slo__ttft_s": 0.2, "network__nic_gbytes_per_s": 1.0}


def test_never_worse_than_the_base_by_the_base_s_own_outcome():
    """With the true future to the end: the base's own continuation is always among what is compared.

    A base with a random stream: the copy has to draw what the run would draw.
    """
    gains = []
    for seed in range(5):
        scenario, workload = tiny(**CROWDED), crowd(seed)
        alone = run(scenario, workload, "random", seed=seed).rows
        ahead = run(scenario, workload, over("random", routes=2), seed=seed).rows
        gains.append(score(ahead) - score(alone))
    assert min(gains) >= 0 and max(gains) > 0


def test_where_nothing_can_be_better_the_run_is_the_base_s():
    """All objectives are met: every decision is a tie, and the base's stream goes on as if nobody had looked."""
    scenario, workload = tiny(**{**CROWDED, "slo__ttft_s": None}), crowd(1)
    alone = run(scenario, workload, "random", seed=3)
    for future in ("true", "none"):
        ahead = run(scenario, workload, over("random", future=future, routes=1), seed=3)
        assert ahead.rows.tobytes() == alone.rows.tobytes()
        assert ahead.result.instances.tobytes() == alone.result.instances.tobytes()
        assert ahead.world.policy_rng.tobytes() == alone.world.policy_rng.tobytes()


@pytest.mark.parametrize("future", ["true", "none"])
def test_it_leaves_the_world_alone(future):
    """Taking the same actions without looking gives the same bytes: of the records, and of every table of the world."""
    scenario, workload = tiny(**CROWDED, reschedule__period_s=0.05), crowd(2)
    bundle = over("mooncake+star", future=future, routes=2, moves=2)
    recorder = Recorder(bundle.actor)
    recorder.migrates = True
    scenario = apply_requirements(scenario, bundle)
    looked = run(scenario, workload, PolicyBundle("l", bundle.router, rescheduler=bundle.rescheduler, actor=recorder))
    replayed = run(scenario, workload, Replay(recorder.actions, migrates=True))
    assert looked.rows.tobytes() == replayed.rows.tobytes()
    assert looked.result.instances.tobytes() == replayed.result.instances.tobytes()
    for name, one, other in zip(looked.world._fields, looked.world, replayed.world, strict=True):
        if not name.startswith("policy_"):
            assert one.tobytes() == other.tobytes(), name


def test_pools_that_are_too_short_for_a_copy_grow(monkeypatch):
    scenario, workload = trap()
    expected = run(scenario, workload, over(greedy, horizon_s=5.0))
    play, short = _Copy.play, [True]

    def once_short(self, *arguments):
        return None if short and short.pop() else play(self, *arguments)

    monkeypatch.setattr(_Copy, "play", once_short)
    grown = run(scenario, workload, over(greedy, horizon_s=5.0))
    assert not short and len(grown.world.node) == 2 * len(expected.world.node)
    assert grown.rows.tobytes() == expected.rows.tobytes()


class Peek:
    """Plays the candidates of one decision, and keeps what comes of them."""

    plans = True

    def __init__(self, at, future):
        self.at, self.future, self.seen = at, future, None

    def attach(self, trials):
        self.trials = trials

    def act(self, view, mask):
        own = self.trials.base_action()
        if self.trials.number() == self.at:
            future = self.trials.futures(self.future, 30.0)[0]
            self.seen = self.trials.play(range(4), 6.0, future)
        return own


class Foresee:
    """Decides as the base, and keeps what it expects of the episode, and of each request, at each decision."""

    plans = True

    def attach(self, trials):
        self.trials, self.expected = trials, []

    def act(self, view, mask):
        own = self.trials.base_action()
        outcome = self.trials.play([own], np.inf)[0]
        state = self.trials._worlds.world(0).state[0]
        requests = self.trials._copies["real"].world.request.tobytes()
        self.expected.append((state.met + outcome.met, state.violated + outcome.violated, requests))
        return own


def test_a_copy_plays_on_exactly_as_the_run_does():
    """At every decision the base's action has the episode's own outcome, to the byte of all records of requests."""
    foresee = Foresee()
    scenario = tiny(prefill__count=2, slo__ttft_s=5.0, slo__tbt_tail_s=0.12)
    done = run(scenario, crowd(6, 10), PolicyBundle("f", make_policy("random").router, actor=foresee), decode_e_s=0.05)
    state = done.world.state[0]
    assert 0 < state.met < 10 and np.all(done.rows.ttft_s <= 5.0)
    assert foresee.expected == [(state.met, state.violated, done.world.request.tobytes())] * 10


@pytest.mark.parametrize(("future", "same"), [("none", True), ("true", False)])
def test_what_is_not_known_does_not_matter(future, same):
    """Two worlds that have looked alike so far: the lengths of the running ones are swapped, others come later."""
    seen = []
    for lengths, later_s, prompt in (((900, 1500), 5.6, 400), ((1500, 900), 9.0, 4000)):
        rows = [(0.0, 50, lengths[0]), (5.0, 50, lengths[1]), (5.5, 50, 300), (later_s, prompt, 300)]
        peek = Peek(2, future)
        scenario = tiny(prefill__count=2, decode__count=1, slo__e2e_s=12.0, prediction__kind="none")
        run(scenario, requests(rows), PolicyBundle("p", greedy, actor=peek))
        seen.append(peek.seen)
    assert (seen[0] == seen[1]) is same


def test_moves_are_tried():
    """Three requests share a decode instance that is too slow for them; the other one is idle.

    A step takes 10 ms a request: 30 ms of three, 20 ms of two. The objective is 25 ms a token: one has to move.
    """
    scenario = tiny(decode__count=2, slo__tpot_s=0.025, reschedule__period_s=0.1, admission__allow_reject=False)
    workload = requests([(0.0, 10, 100), (0.0, 10, 100), (0.0, 10, 100)])
    slow = {"decode_d_s": 0.0, "decode_e_s": 0.01}
    alone = run(scenario, workload, greedy, **slow).rows
    assert alone.slo_met.tolist() == [0, 0, 0]
    ahead = run(scenario, workload, over(greedy, routes=1, decodes=1, moves=4), **slow).rows
    assert ahead.migrations.sum() > 0 and ahead.slo_met.sum() == 3


class Draw:
    """Keeps the futures that are sampled at the last decision, and what comes of a route in each."""

    plans = True

    def __init__(self, horizon_s):
        self.horizon_s = horizon_s

    def attach(self, trials):
        self.trials = trials

    def act(self, view, mask):
        self.futures = self.trials.futures("sampled", self.horizon_s, 2, 7)
        self.now_s = float(view.cluster[0].now_s)
        self.seen = [self.trials.play([0], self.horizon_s, future)[0] for future in self.futures]
        return self.trials.base_action()


def sampled(horizon_s):
    """Two dialogues that wait for their users, and a third request, of a model with 5 requests a second."""
    changes = {"workload__requests": 400, "workload__rate_rps": 5.0, "workload__params": {"continue_probability": 0.8}}
    scenario = tiny(page_tokens=512, prefill__count=2, slo__ttft_s=500.0, **changes)
    rows = [(0.0, 1024, [("a", at) for at in range(600)]), (0.0, 1024, 3), (40.0, 700, 3)]
    draw = Draw(horizon_s)
    return run(scenario, requests(rows, 512, session=[0, 1, 2]), PolicyBundle("d", greedy, actor=draw)), draw


def test_sampled_requests_come_within_the_horizon_and_find_what_is_cached():
    """Pages 0 and 1 are the first dialogue's prompt: a later turn begins with them and with its answer's page."""
    done, draw = sampled(5.0)
    assert np.all(done.rows.outcome == 1)  # the run knows nothing of them
    answer = int(done.world.blocks[done.world.workload[0].answer_start])
    for future in draw.futures:
        rows, blocks = future._rows, np.concatenate(future._blocks)
        assert len(rows) > 10
        assert np.all((rows["arrival_s"] > draw.now_s) & (rows["arrival_s"] <= draw.now_s + 5.0))
        starts = rows["block_start"] - rows["block_start"][0]
        begins = [blocks[start : start + 3].tolist() for start in starts]
        assert begins.count([0, 1, answer]) == 1
        fresh = blocks[blocks >= len(done.world.holders)]
        assert len(np.unique(fresh)) == len(fresh) == len(blocks) - 3 - 2  # and the other dialogue's two pages
    assert draw.seen[0] != draw.seen[1]
    assert sampled(5.0)[1].seen == draw.seen


def test_a_trace_has_no_model(tmp_path):
    line = '{"timestamp": 0, "input_length": 600, "output_length": 3, "hash_ids": [0, 1]}'
    (tmp_path / "trace.jsonl").write_text(line + "\n", encoding="utf-8")
    scenario = tiny(page_tokens=512, workload__kind="mooncake", workload__trace=str(tmp_path / "trace.jsonl"))
    with pytest.raises(InputError, match="expected a generator to sample the future from, got a trace"):
        run(scenario, requests([(0.0, 600, 3)], 512), over(greedy, future="sampled"))


def test_copies_have_to_be_attached():
    scenario, workload = trap()
    bundle = over(greedy, horizon_s=5.0)
    expected = run(scenario, workload, bundle).rows
    for twin in (copy.deepcopy(bundle.actor), pickle.loads(pickle.dumps(bundle.actor))):
        with pytest.raises(InputError, match=r"call attach\(trials\) first"):
            twin.act(None, None)
        assert run(scenario, workload, PolicyBundle("t", greedy, actor=twin)).rows.tobytes() == expected.tobytes()


def test_names_and_parameters():
    bundle = make_policy("lookahead(base=mooncake(threshold=2, pulls=0)+early_reject, horizon_s=20, future=none)+star")
    assert bundle.router.params["pulls"] == 0 and bundle.admission.name == "early_reject"
    assert bundle.rescheduler.name == "star" and bundle.plans and not bundle.actor.migrates
    assert (bundle.actor.horizon_s, bundle.actor.future) == (20.0, "none")
    assert make_policy("hindsight(horizon_s=inf,moves=3)").actor.future == "true"
    assert make_policy("lookahead").actor.future == "sampled"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("hindsight(future=none)", "policy hindsight: unknown parameter 'future'.*it has: base, horizon_s, routes"),
        ("lookahead(horizon=3)", "unknown parameter 'horizon'.*did you mean 'horizon_s'"),
        ("lookahead(horizon_s=0)", "horizon_s must be above 0"),
        ("lookahead(routes=1.5)", "routes must be a whole number"),
        ("lookahead(future=maybe)", "future must be one of true, none, sampled, got 'maybe'"),
        ("lookahead(base=lookahead)", "base must be compiled policies with a router, got 'lookahead'"),
        ("lookahead(base=star)", "base must be compiled policies with a router, got 'star'"),
        ("lookahead(horizon_s=x)", "expected key=number, got 'horizon_s=x'"),
    ],
)
def test_refused(name, message):
    with pytest.raises(InputError, match=message):
        make_policy(name)


def test_a_planner_is_not_checked_by_itself():
    with pytest.raises(InputError, match="check its base"):
        check_policy("lookahead")


def test_scripts_are_no_planners():
    assert not PolicyBundle("s", actor=Script()).plans
