"""Foundations of the engine: errors, checks of data, parameters, progress, diagnostics, npz files, versions.

Imports no other package of the engine. Start with `spec`, the parameters of a fit, and `errors`.
"""
