"""What keeps a command from starting."""


class StartError(RuntimeError):
    """What keeps the command from starting; the message says the remedy."""
