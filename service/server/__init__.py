"""HTTP server of one API process: uvicorn with graceful shutdown, Prometheus metrics.

May import `responses` and `middleware`. Start with `uvicorn_server`.
"""
