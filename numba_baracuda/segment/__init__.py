"""Segment ops: rows that share an id are folded into one, and gradients go the way back."""
