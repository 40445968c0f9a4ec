"""Capacity model: measured costs of real processes, fitted laws, a simulation, and docs/scaling.md. `python -m bench.capacity`"""
