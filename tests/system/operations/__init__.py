"""System tests of process lifetime, storage, keys and traces."""
