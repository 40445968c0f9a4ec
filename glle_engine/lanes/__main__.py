"""`python -m glle_engine.lanes`: compile everything, so that no fit or draw waits for the compiler later."""

from glle_engine.fingerprint import fingerprint
from glle_engine.lanes.solver import warm

if __name__ == "__main__":
    warm()
    fingerprint()
