"""Execution of tasks: a worker's processes (parent, RQ workers and sampler), and the tasks that they run.

May import `stores` and every package that `stores` imports. Start with `parent`, then `worker` and `tasks`.
"""
