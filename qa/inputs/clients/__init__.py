"""Checks of generated clients: generators make clients from the OpenAPI contract, which then call a running service.

`npm` installs the locked packages, `journeys` runs the pages of the documentation, and `page` checks the types of the
explorer's scripts. May import `tests.system.conftest`. Start with `__main__`.
"""
