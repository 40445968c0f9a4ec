"""The engine's version: part of every posterior's identity."""

__version__ = "0.1.0"
