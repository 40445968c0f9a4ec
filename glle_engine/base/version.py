"""The engine's version, and that of its numbers."""

__version__ = "0.1.0"

# The first version whose fits, draws and analyses have the bits of this one's. Ids are digests of it, not of the
# version, so that an upgrade that changes no bit changes no id, and one id never stands for two results. Whoever
# changes a bit writes the version here that the change will be released as.
NUMBERS = "0.2.0"
