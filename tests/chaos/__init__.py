"""Real processes killed at random under a mixed load: `python -m tests.chaos`, or `make chaos`."""
