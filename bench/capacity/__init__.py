"""Capacity model: measured costs, fitted laws, a simulation and docs/scaling.md (`python -m bench.capacity`)."""
