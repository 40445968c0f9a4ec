"""The service on several machines: each a network namespace with a separate address.

`python -m qa.faults.hosts` (or `make -C qa hosts`) makes them, starts on them what docker-compose.yml starts, breaks
machines and links, and prints a table; it ends with 1 when a column that must be zero is not.
"""
