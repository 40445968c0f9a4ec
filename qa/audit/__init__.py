"""Checks of the locked packages: known vulnerabilities, wheels for all platforms, and the newest versions."""
