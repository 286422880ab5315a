"""What no single key of a scenario shows: whether the keys fit together."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

from cacheenv import physics, workload
from cacheenv.errors import ConfigError, InputError
from cacheenv.scenario.fleet import Group, groups_of
from cacheenv.scenario.models import check_layers, check_models
from cacheenv.scenario.sections import TRACE_KIND, ClusterConfig, DecodeConfig, PrefillConfig, WorkloadConfig


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
    ends = []
    for group in groups_of(cluster):
        preset = _preset(group.place_of("preset"), physics.load_preset, group.section.preset)
        ends.append((group.place_of("preset"), preset))
        check_models(ends[0], ends[-1])
        _preset(group.place_of("link"), physics.load_link, group.network.link)
        if isinstance(group.section, PrefillConfig):
            _check_prefill(group, group.section, preset, page)
        else:
            _check_decode(group, group.section, preset, page)
    check_layers(cluster.network.layers, ends[0][1])
    _check_page("cluster.store.capacity_tokens", cluster.store.capacity_tokens or page, page)
    _check_page("cluster.index.memory_tokens", cluster.index.memory_tokens or page, page)
    if cluster.prefill.pre_prefill >= cluster.prefill.count:
        _fail("cluster.prefill.pre_prefill", f"expected less than cluster.prefill.count = {cluster.prefill.count}")


def _check_page(place: str, tokens: int, page: int) -> None:
    if tokens < page:
        _fail(place, f"expected room for at least one page of {page} tokens, got {tokens}")


def _check_prefill(group: Group, section: PrefillConfig, preset: physics.Preset, page: int) -> None:
    """Capacities of a group of prefill instances."""
    place, held = group.place_of("cache_tokens"), preset.capacity_tokens
    _check_page(place, section.cache_tokens or held, page)
    _check_page(group.place_of("host_cache_tokens"), section.host_cache_tokens or page, page)
    if section.cache_tokens is not None and section.cache_tokens > held:
        _fail(
            place,
            f"expected at most the {held} tokens that {preset.name} holds beside its weights, got "
            f"{section.cache_tokens} (host memory is {place.replace('cache_tokens', 'host_cache_tokens')})",
        )


def _check_decode(group: Group, section: DecodeConfig, preset: physics.Preset, page: int) -> None:
    """Capacities of a group of decode instances."""
    capacity = preset.capacity_tokens if section.kv_tokens is None else section.kv_tokens
    _check_page(group.place_of("kv_tokens"), capacity, page)
    if capacity > preset.capacity_tokens:
        _fail(
            group.place_of("kv_tokens"),
            f"expected at most the {preset.capacity_tokens} tokens that {preset.name} holds beside its weights, got "
            f"{capacity}",
        )
    if section.reserve_tokens >= capacity:
        _fail(group.place_of("reserve_tokens"), f"expected less than the KV capacity of {capacity} tokens")


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
