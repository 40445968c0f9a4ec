"""Bytes of responses: JSON, npy, npz, CSV and Arrow, compression, byte ranges and slices.

May import `schemas`. Start with `arrays`.
"""
