"""Fast engine tests with the kernels of other processors: `python -m qa.processors`."""
