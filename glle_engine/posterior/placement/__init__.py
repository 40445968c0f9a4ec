"""Placement of points by their weights on other points: new points, and the points that are no landmarks.

May import `summary` of the package above, and its lower packages. Start with `out_of_sample`.
"""
