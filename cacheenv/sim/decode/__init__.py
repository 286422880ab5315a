"""Decode instances: the running batch, its steps, and migration."""
