"""Lua scripts of the job records and of the lines of waiting tasks."""
