"""Fill-reducing orders of symmetric patterns, by compiled integer arithmetic: the same order on every machine.

May import `linalg`. Start with `dissection`.
"""
