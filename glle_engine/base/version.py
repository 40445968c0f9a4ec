"""The engine's version, and the version of its numbers."""

__version__ = "0.1.0"

# The first version with the bits of this version's fits, draws and analyses. Ids are digests of it, not of the version,
# so that an upgrade that changes no bit changes no id, and one id never stands for two results. A change of a bit sets
# it to the version of its release.
NUMBERS = "0.4.0"
