"""TypeScript against a running service: the published client, and clients generated from the contract.

`npm` installs what their lock files pin. May import `tests.system.conftest`. Start with `__main__`.
"""
