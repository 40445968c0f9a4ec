"""System tests: real servers, real workers, real HTTP."""
