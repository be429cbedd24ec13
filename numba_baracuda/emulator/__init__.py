"""Kernels without a GPU: their Python source is lowered to Python that runs one lane, and a scheduler runs lanes in turn under a race detector."""
