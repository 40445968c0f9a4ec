"""Version of the engine, and version of its results, which changes whenever the same input gives other bits."""

__version__ = "0.1.0"

# Version of the results: engines with equal NUMBERS give fits, draws and analyses that are equal bit for bit. The ids
# of results are digests that include NUMBERS but not the engine's version: an upgrade that changes no bit of a result
# changes no id, and one id never stands for two results. If you change a bit of a result, set NUMBERS to a version that
# it never had.
NUMBERS = "0.5.0"
