"""Execution of tasks: the worker, its RQ workers and its sampler, and their tasks.

May import `stores` and every package that `stores` imports. Start with `parent`, then `worker` and `tasks`.
"""
