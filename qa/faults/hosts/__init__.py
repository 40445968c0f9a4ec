"""The service on several machines: each is a network namespace with a separate address.

`python -m qa.faults.hosts` (or `make -C qa hosts`) creates them, starts the services of docker-compose.yml on them,
breaks machines and links, and prints a table. The exit code is 1 if a column that must be zero is not.
"""
