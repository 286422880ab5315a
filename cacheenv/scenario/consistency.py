"""What no single key of a scenario shows: whether the keys fit together."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

from cacheenv import physics, workload
from cacheenv.errors import ConfigError, InputError
from cacheenv.scenario.models import check_layers, check_models
from cacheenv.scenario.sections import TRACE_KIND, ClusterConfig, WorkloadConfig


def _fail(place: str, message: str) -> NoReturn:
    raise ConfigError(f"{place}: {message}", place)


def _preset(place: str, load: Callable[[Any], Any], name: Any) -> Any:
    try:
        return load(name)
    except InputError as problem:
        raise ConfigError(f"{place}: {problem}", place) from None


def check_cluster(cluster: ClusterConfig) -> None:
    """Presets that exist, capacities that hold at least one page, roles that leave somebody to route to.

    Raises:
        ConfigError: With the dotted place of the first key that does not fit.
    """
    page = cluster.page_tokens
    prefill_preset = _preset("cluster.prefill.preset", physics.load_preset, cluster.prefill.preset)
    decode_preset = _preset("cluster.decode.preset", physics.load_preset, cluster.decode.preset)
    check_models(("cluster.prefill.preset", prefill_preset), ("cluster.decode.preset", decode_preset))
    check_layers(cluster.network.layers, prefill_preset)
    _preset("cluster.network.link", physics.load_link, cluster.network.link)
    capacity = cluster.decode.kv_tokens if cluster.decode.kv_tokens is not None else decode_preset.capacity_tokens
    for place, tokens in (
        ("cluster.prefill.cache_tokens", cluster.prefill.cache_tokens or prefill_preset.capacity_tokens),
        ("cluster.prefill.host_cache_tokens", cluster.prefill.host_cache_tokens or page),
        ("cluster.decode.kv_tokens", capacity),
        ("cluster.store.capacity_tokens", cluster.store.capacity_tokens or page),
        ("cluster.index.memory_tokens", cluster.index.memory_tokens or page),
    ):
        if tokens < page:
            _fail(place, f"expected room for at least one page of {page} tokens, got {tokens}")
    held = prefill_preset.capacity_tokens
    if cluster.prefill.cache_tokens is not None and cluster.prefill.cache_tokens > held:
        _fail(
            "cluster.prefill.cache_tokens",
            f"expected at most the {held} tokens that {prefill_preset.name} holds beside its weights, got "
            f"{cluster.prefill.cache_tokens} (host memory is cluster.prefill.host_cache_tokens)",
        )
    if capacity > decode_preset.capacity_tokens:
        _fail(
            "cluster.decode.kv_tokens",
            f"expected at most the {decode_preset.capacity_tokens} tokens that {decode_preset.name} holds beside its "
            f"weights, got {capacity}",
        )
    if cluster.decode.reserve_tokens >= capacity:
        _fail("cluster.decode.reserve_tokens", f"expected less than the KV capacity of {capacity} tokens")
    if cluster.prefill.pre_prefill >= cluster.prefill.count:
        _fail("cluster.prefill.pre_prefill", f"expected less than cluster.prefill.count = {cluster.prefill.count}")


def check_workload(options: WorkloadConfig, warmup_requests: int) -> None:
    """Keys that fit the kind of workload, a trace that exists, parameters that its generator takes.

    Raises:
        ConfigError: With the dotted place of the first key that does not fit.
    """
    if options.kind == TRACE_KIND:
        if not options.trace:
            _fail("workload.trace", "expected the path of a trace for kind mooncake")
        if not Path(str(options.trace)).is_file():
            _fail("workload.trace", f"no such file: {options.trace}")
        if options.params:
            _fail("workload.params", "traces have no generator parameters")
        if options.window_requests is not None and warmup_requests >= options.window_requests:
            _fail("warmup_requests", f"expected less than workload.window_requests = {options.window_requests}")
        return
    if options.trace:
        _fail("workload.trace", f"expected null for kind {options.kind} (kind mooncake reads a trace)")
    if options.window_requests is not None:
        _fail("workload.window_requests", f"expected null for kind {options.kind}, which draws every episode anew")
    if options.split != "all":
        _fail("workload.split", f"expected 'all' for kind {options.kind}: only traces are split")
    try:
        workload.check_params(options.kind, options.params)
    except InputError as problem:
        raise ConfigError(f"workload.params: {problem}", "workload.params") from None
    if warmup_requests >= options.requests:
        _fail("warmup_requests", f"expected less than workload.requests = {options.requests}")
