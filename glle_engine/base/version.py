"""The engine's version, and the version of its numbers."""

__version__ = "0.1.0"

# The first version whose fits, draws and analyses have the same bits as this version's. Ids are digests of NUMBERS, not
# of the version: an upgrade that changes no bit changes no id, and one id never stands for two results. If you change a
# bit, set NUMBERS to the version of the release.
NUMBERS = "0.4.0"
