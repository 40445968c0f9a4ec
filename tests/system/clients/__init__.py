"""System tests of the Python client, the commands and the HTTP contract."""
