"""Execution of tasks: the worker, its executor and its forking worker, their tasks, and their supervision.

May import `stores` and every package that `stores` imports. Start with `worker`, then `tasks`.
"""
