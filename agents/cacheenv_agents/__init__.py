"""Learned agents: training with Stable-Baselines3, evaluation, and `agent:PATH` as a policy name."""
