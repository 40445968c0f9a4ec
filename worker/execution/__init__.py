"""The processes of a worker (a parent, two RQ workers and a sampler), and the tasks that they run.

May import `stores` and every package that `stores` imports. Start with `parent`, then `worker` and `tasks`.
"""
