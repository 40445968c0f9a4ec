"""Run the test suites of other libraries on the engine's methods: `scikit_learn` and `peers`, by what `runs` offers.

For this, each class of the library is replaced by a stand-in, which has the same name and signature but computes by the
engine. For each failing test there has to be a reason. A second run replaces every embedding by random numbers: tests
that still pass look only at shapes, types, errors and attributes.
"""
