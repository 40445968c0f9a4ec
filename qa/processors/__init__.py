"""Fast tests of the engine with the kernels of other processors: `python -m qa.processors`."""
