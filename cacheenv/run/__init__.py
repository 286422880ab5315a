"""Runs: worlds of a scenario, one simulation, its records and metrics."""
