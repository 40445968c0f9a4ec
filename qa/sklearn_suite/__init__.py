"""Scikit-learn's tests of embeddings, run on the engine's methods: `python -m qa.sklearn_suite`."""
