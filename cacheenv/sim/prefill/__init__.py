"""Prefill instances: queue, batches, prefixes that travel."""
