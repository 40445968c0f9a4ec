"""System tests of jobs, draws and analyses."""
