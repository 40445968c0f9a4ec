"""Execution of tasks: the RQ worker, its tasks, and their supervision.

May import `stores` and every package that `stores` imports. Start with `worker`, then `tasks`.
"""
