"""Kernels without a GPU: their Python source is lowered to Python that runs one lane, and lanes take turns under a race detector."""
