"""HTTP server of one API process: uvicorn, metrics, traces, graceful shutdown.

May import `responses` and `middleware`. Start with `uvicorn_server`.
"""
