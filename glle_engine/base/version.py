"""The engine's version, and the version of its numbers."""

__version__ = "0.1.0"

# The first version whose fits, draws and analyses are bit for bit equal to this version's. The ids of results are
# digests that include NUMBERS and not the version: an upgrade that changes no bit of a result changes no id, and one id
# never stands for two results. If you change a bit of a result, set NUMBERS to the version of the next release.
NUMBERS = "0.4.0"
