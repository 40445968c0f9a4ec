"""Pictures of embeddings as PNG or SVG, made by workers for clients without a plotting library (extra `pictures`).

May import what `worker.analyses` may. Start with `picture`, then `panels` and `figure`.
"""
