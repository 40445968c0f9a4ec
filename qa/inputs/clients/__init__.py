"""Clients that generators make from the contract, against a running service.

`npm` installs what its lock file pins, and `journeys` runs the pages. May import `tests.system.conftest`. Start with
`__main__`.
"""
