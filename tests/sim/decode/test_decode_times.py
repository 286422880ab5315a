"""What policies see of the decode times so far."""

from __future__ import annotations

import pytest
from tiny_cluster import Script, requests, run, tiny


def test_the_decode_time_of_those_found_decoding():
    """Steps of 10 ms: 10 and 30 of them take 0.1 and 0.3 s. (0.01 + 0.09) / 0.4 = 0.25 s, more than their mean."""
    seen = []
    watch = Script(watch=lambda view: seen.append((view.cluster[0].decode_time_s, view.cluster[0].decoded_requests)))
    run(tiny(), requests([(0.0, 100, 11), (10.0, 100, 31), (20.0, 100, 1), (30.0, 100, 2)]), watch)
    assert [number for _, number in seen] == [0, 1, 2, 2]
    assert [seconds for seconds, _ in seen] == pytest.approx([0.0, 0.1, 0.25, 0.25])
