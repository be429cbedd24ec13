"""Measurements: they print and write figures, and judge nothing."""
