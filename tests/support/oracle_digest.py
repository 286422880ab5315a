"""Digests of what the engine makes of the cases of some numbers; run as a script in processes that are to agree.

python oracle_digest.py REQUESTS FIRST LAST
"""

from __future__ import annotations

import hashlib
import json
import sys

from oracle_cases import Limits, random_case
from oracle_tools import run_engine


def digests(limits: Limits, first: int, last: int) -> dict[str, str]:
    """Case number -> digest of all records and totals."""
    found = {}
    for number in range(first, last):
        result = run_engine(random_case(number, limits)).result
        found[str(number)] = hashlib.sha256(result.requests.tobytes() + result.instances.tobytes()).hexdigest()
    return found


if __name__ == "__main__":
    size, first, last = map(int, sys.argv[1:])
    json.dump(digests(Limits(requests=size), first, last), sys.stdout)
