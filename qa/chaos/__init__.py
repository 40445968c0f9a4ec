"""Real processes killed at random under a mixed load: `python -m qa.chaos`, or `make chaos`."""
