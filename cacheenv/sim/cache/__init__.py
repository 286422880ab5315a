"""Prefix caches: radix trees, eviction, room."""
