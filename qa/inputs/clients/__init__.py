"""The TypeScript client against a running service.

`npm` installs what its lock file pins. May import `tests.system.conftest`. Start with `__main__`.
"""
