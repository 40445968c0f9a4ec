"""How far points move on other samples of the data: resamples, calibrated draws, and their ensemble.

May import every other file of the package above. Start with `ensemble`, then `resampling` and `calibration`.
"""
