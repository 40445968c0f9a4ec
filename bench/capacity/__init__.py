"""Capacity model: measured costs, fitted laws, a simulation and docs/how-to/scaling.md (`python -m bench.capacity`)."""
