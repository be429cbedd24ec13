"""Measurements: they print and write figures, and set no limits."""
