"""Foundations of the engine: errors, data validation, parameters, progress, diagnostics, tables and pictures, versions.

Imports no other package of the engine. Start with `parameters`, `spec` (the parameters of a fit) and `errors`.
"""
