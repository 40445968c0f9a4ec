"""Test suites of other libraries, run on the engine's methods: `scikit_learn` and `peers`. `runs` is what they share.

A stand-in has the name and the signature of a class of the library, and computes by the engine. Each failing test has
a reason. A second run replaces every embedding by random numbers: the tests that still pass look at shapes, types,
errors and attributes, and say nothing about embeddings.
"""
