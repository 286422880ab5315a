"""Numbers and names that the environment's docstring, and so docs/environment.md, states are those of the code."""

import re

from environment_pages import block_name, page_sections
from markdown_table import table

from cacheenv.envs import features
from cacheenv.envs.actions import MOVE_PARTS, ROUTE_PARTS
from cacheenv.envs.env import RESET_OPTIONS, CacheEnv
from cacheenv.envs.registration import IDS
from cacheenv.envs.rewards import REWARDS

PAGE = page_sections(CacheEnv)


def first_column(text, header):
    """Names in the first column of the table that begins with a header cell."""
    lines = text.split(f"| {header} |", 1)[1].split("\n\n")[0].splitlines()[2:]
    return [re.search(r"`(.+?)`", line)[1] for line in lines]


def test_the_sections_are_those_of_a_gymnasium_page():
    assert list(PAGE) == [
        "", "Description", "Action Space", "Observation Space", "Rewards", "Starting State", "Episode End",
        "Information", "Version History", "Arguments",
    ]  # fmt: skip
    assert block_name("") == "environment_ids" and block_name("Action Space") == "environment_action_space"
    assert table(["a"], [["b|c"]]) == "| a |\n| --- |\n| b&#124;c |\n"


def test_names():
    assert first_column(PAGE[""], "id") == list(IDS)
    assert first_column(PAGE["Observation Space"], "table") == list(features.TABLES)
    assert first_column(PAGE["Rewards"], "`reward`") == list(REWARDS)
    assert first_column(PAGE["Starting State"], "option") == list(RESET_OPTIONS)
    for name, parts in (("routing", ROUTE_PARTS), ("migration", MOVE_PARTS)):
        assert f"| {name} | {', '.join(f'`{part}`' for part in parts)} |" in PAGE["Action Space"]


def test_tables_of_the_observation():
    for line in re.findall(r"^\| `(\w+)` \| .* \| ([\w, ]+) \|$", PAGE["Observation Space"], re.MULTILINE):
        table_name, ids = line
        routes, moves = table_name in ("request", "prefill"), table_name == "candidate"
        kinds = [name.split("/")[1].split("-")[0] for name, kind in IDS.items()
                 if (kind["routes"] or not routes) and (kind["moves"] or not moves)]  # fmt: skip
        assert ids == ("all" if len(kinds) == len(IDS) else ", ".join(kinds)), table_name


def test_constants():
    ttft, gap = features.DEFAULT_TTFT_SLO_S, features.DEFAULT_TBT_SLO_S
    assert f"{ttft:g} s stand for the TTFT and {gap:g} s for the gap" in " ".join(PAGE["Observation Space"].split())
    assert f"minus {REWARDS['shaped'].per_request_s:g} for each request-second" in PAGE["Rewards"]
