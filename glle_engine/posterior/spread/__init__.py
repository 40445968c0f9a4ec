"""How far points move on other samples of the data: half-samples, and the calibration of draws against them.

May import every other file of the package above. Start with `calibration`.
"""
