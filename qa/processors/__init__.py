"""Run the engine's tests as if on other processors: `python -m qa.processors`."""
