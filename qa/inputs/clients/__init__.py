"""Clients that generators make from the contract, against a running service.

`npm` installs what its lock file pins, `journeys` runs the pages, and `page` checks the types of the explorer's scripts
by the same tools. May import `tests.system.conftest`. Start with
`__main__`.
"""
