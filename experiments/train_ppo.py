"""An agent learns to route on an overloaded cluster: training, evaluation, curve and table.

    python experiments/train_ppo.py [--config configs/agents/ppo.yaml] [--run runs/ppo] [--out experiments/results]

Trains by the configuration (or goes on with an interrupted training in `--run`), then plays every checkpoint and the
baselines on seeds 0-29; training draws its episode seeds from 62-bit numbers, so these are others. Writes
`NAME_curve.csv/png` (goodput against decisions trained on) and `NAME_table.csv/png`, NAME being the configuration's.
The overload: 7 requests/s, of which 8 prefill instances under a router that ignores caches serve about 4 to 4.7.
The simple routers can neither pull prefixes nor reject, the agent can do both; `OTHERS` shows what that is worth.
"""

from __future__ import annotations

import argparse
import csv
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from cacheenv import load_scenario, simulate
from cacheenv.commands.intervals import paired_difference
from cacheenv.errors import InputError
from cacheenv.scenario import Scenario
from cacheenv.scenario.objectives import objectives_text
from cacheenv_agents.config import load_config
from cacheenv_agents.run_folder import CONFIG, SCENARIO, RunFolder
from cacheenv_agents.train import train

ROOT = Path(__file__).resolve().parent.parent
SEEDS = 30
RIVALS = ("random", "round_robin", "least_requests")
OTHERS = ("least_requests+early_reject", "mooncake", "mooncake+early_reject")
METRICS = ("goodput_rps", "slo_attainment", "ttft_mean_s", "ttft_p99_s", "hit_rate", "rejected")


def play(scenario: Scenario, policy: str) -> list[dict[str, Any]]:
    """Summaries on the evaluation seeds."""
    return [simulate(scenario, policy, seed).summary for seed in range(SEEDS)]


def means(runs: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Mean and standard deviation of the metrics over the evaluation seeds."""
    row: dict[str, Any] = {"seeds": SEEDS}
    for name in METRICS:
        values = [run[name] for run in runs]
        row[name] = round(float(np.mean(values)), 4)
        row[f"{name}_std"] = round(float(np.std(values, ddof=1)), 4)
    return row


def table_rows(runs: dict[str, list[dict[str, Any]]]) -> list[dict[str, Any]]:
    """A row a policy; the agent's goodput less the policy's on equal arrivals, and half of its 95 % interval."""
    goodputs = {label: [run["goodput_rps"] for run in own] for label, own in runs.items()}
    rows = []
    for label, own in runs.items():
        difference, half_width = paired_difference(goodputs["agent"], goodputs[label])
        ahead = ("", "") if label == "agent" else (round(difference, 4), round(half_width, 4))
        rows.append({"policy": label, **means(own), "agent_ahead_rps": ahead[0], "half_width_rps": ahead[1]})
    return rows


def curve_rows(folder: RunFolder, scenario: Scenario) -> list[dict[str, Any]]:
    """Goodput against decisions: of the training's own episodes, and of each checkpoint on the evaluation seeds."""
    names = ("timesteps", "wall_s", "training_goodput_rps", "goodput_rps", "goodput_rps_std")
    rows = [{**row, "training_goodput_rps": row["goodput_rps"], "goodput_rps": ""} for row in folder.curve()]
    for checkpoint in folder.checkpoints():
        found = means(play(scenario, f"agent:{checkpoint.folder}"))
        rows.append({**found, "timesteps": checkpoint.timesteps, "wall_s": round(checkpoint.wall_s, 1)})
        print(f"{checkpoint.timesteps:>12,} decisions: {found['goodput_rps']:.2f} requests/s", flush=True)
    rows.sort(key=lambda row: row["timesteps"])
    return [{name: row.get(name, "") for name in names} | {"timesteps": int(row["timesteps"])} for row in rows]


def write_csv(rows: Sequence[dict[str, Any]], path: Path) -> None:
    """Rows of equal keys."""
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def plot_curve(curve: Sequence[dict[str, Any]], table: Sequence[dict[str, Any]], title: str, path: Path) -> None:
    """Goodput against decisions, baselines as lines."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(8, 4.8), layout="constrained")
    played = [row for row in curve if row["goodput_rps"] != ""]
    steps = np.array([row["timesteps"] for row in played]) / 1e6
    mean = np.array([row["goodput_rps"] for row in played])
    spread = np.array([row["goodput_rps_std"] for row in played])
    axes.plot(steps, mean, "o-", color="C0", label=f"agent, best action, {SEEDS} evaluation seeds (± std)")
    axes.fill_between(steps, mean - spread, mean + spread, color="C0", alpha=0.2)
    own = [(row["timesteps"] / 1e6, row["training_goodput_rps"]) for row in curve if row["training_goodput_rps"] != ""]
    axes.plot(*zip(*own, strict=True), ".:", color="C0", label="agent, sampled actions, training episodes")
    for number, row in enumerate(row for row in table if row["policy"] != "agent"):
        style = "--" if row["policy"] in RIVALS else "-."
        axes.axhline(row["goodput_rps"], color=f"C{number + 1}", linestyle=style, label=row["policy"])
    axes.set_xlabel("decisions trained on [million]")
    axes.set_ylabel("goodput: requests/s that meet their SLOs")
    axes.set_ylim(bottom=0)
    axes.set_title(title, fontsize="medium")
    axes.grid(alpha=0.3)
    axes.legend(fontsize="small", loc="center left", bbox_to_anchor=(1.0, 0.5))
    figure.savefig(path, dpi=130)


def plot_table(table: Sequence[dict[str, Any]], title: str, path: Path) -> None:
    """Bars of goodput, attainment and cache hits."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, panels = plt.subplots(1, 3, figsize=(11, 3.4), sharey=True, layout="constrained")
    places = range(len(table))
    colours = ["C0" if row["policy"] == "agent" else "0.6" for row in table]
    for panel, name, label, factor in (
        (panels[0], "goodput_rps", "goodput [requests/s]", 1.0),
        (panels[1], "slo_attainment", "requests that meet their SLOs [%]", 100.0),
        (panels[2], "hit_rate", "prompt tokens served from cache [%]", 100.0),
    ):
        means = [factor * row[name] for row in table]
        bars = panel.barh(places, means, xerr=[factor * row[f"{name}_std"] for row in table], color=colours, capsize=2)
        panel.bar_label(bars, [f"{mean:.2f}" if factor == 1.0 else f"{mean:.0f}" for mean in means], padding=6)
        panel.set_xlim(0, 1.25 * max(means))
        panel.set_xlabel(label)
        panel.grid(axis="x", alpha=0.3)
    panels[0].set_yticks(places, [row["policy"] for row in table])
    panels[0].invert_yaxis()
    figure.suptitle(title, fontsize="medium")
    figure.savefig(path, dpi=130)


def main() -> int:
    """Trains, evaluates, writes; 0 when the agent beats the three simple routers."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--config", type=Path, default=ROOT / "configs" / "agents" / "ppo.yaml")
    parser.add_argument(
        "--run", type=Path, help="output folder of the training (runs/NAME); gone on with if it is there"
    )
    parser.add_argument("--out", type=Path, default=ROOT / "experiments" / "results")
    parser.add_argument("--threads", type=int, default=1, help="threads of torch")
    arguments = parser.parse_args()
    name = arguments.config.stem
    run = arguments.run or Path("runs") / name
    outcome = train(
        load_config(arguments.config), run, resume=(run / CONFIG).is_file(), threads=arguments.threads,
        arguments={"config": str(arguments.config), "threads": arguments.threads},
    )  # fmt: skip
    if not outcome.finished:
        print("interrupted; the same command goes on", file=sys.stderr)
        return 130
    print(f"{outcome.timesteps:,} decisions in {outcome.wall_s:.0f} s")
    scenario = load_scenario(run / SCENARIO)
    curve = curve_rows(RunFolder(run), scenario)
    policies = {"agent": f"agent:{run}", **{each: each for each in (*RIVALS, *OTHERS)}}
    table = table_rows({label: play(scenario, policy) for label, policy in policies.items()})
    arguments.out.mkdir(parents=True, exist_ok=True)
    write_csv(curve, arguments.out / f"{name}_curve.csv")
    write_csv(table, arguments.out / f"{name}_table.csv")
    load = f"{scenario.name} at {scenario.workload.rate_rps:g} requests/s"
    goals = objectives_text(scenario.to_dict()["slo"])
    trained = f"{outcome.timesteps / 1e6:.1f} million decisions in {outcome.wall_s / 60:.1f} min"
    plot_curve(curve, table, f"{name} on {load}: {trained}\n{goals}", arguments.out / f"{name}_curve.png")
    plot_table(
        table, f"{name} on {load}, {SEEDS} evaluation seeds (± std)\n{goals}", arguments.out / f"{name}_table.png"
    )
    print(goals)
    for row in table:
        ahead = (
            f", agent {row['agent_ahead_rps']:+.2f} ± {row['half_width_rps']:.2f}"
            if row["half_width_rps"] != ""
            else ""
        )
        print(f"{row['policy']:>28}: {row['goodput_rps']:.2f} ± {row['goodput_rps_std']:.2f} requests/s{ahead}")
    beaten = all(row["agent_ahead_rps"] > row["half_width_rps"] for row in table if row["policy"] in RIVALS)
    print(f"the agent {'beats' if beaten else 'DOES NOT BEAT'} {', '.join(RIVALS)}")
    return 0 if beaten else 1


if __name__ == "__main__":
    try:
        sys.exit(main())
    except InputError as problem:
        sys.exit(f"error: {problem}")
