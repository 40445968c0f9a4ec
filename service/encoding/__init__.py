"""Encodings of responses: JSON, npy, npz, CSV, Arrow, compression, byte ranges and slices.

May import `schemas`. Start with `result`.
"""
