"""`python -m glle_engine.lanes`: compile everything, so that nobody waits for it later."""

from glle_engine.lanes.solver import warm

if __name__ == "__main__":
    warm()
