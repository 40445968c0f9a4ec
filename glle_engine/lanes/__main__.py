"""`python -m glle_engine.eigen.batched`: compile everything, so that no fit or draw waits for the compiler later."""

from glle_engine.eigen.batched.solver import warm
from glle_engine.posterior.fingerprint import fingerprint

if __name__ == "__main__":
    warm()
    fingerprint()
