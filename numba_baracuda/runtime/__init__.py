"""Kernels on their way to a GPU: compiled, kept on disk, loaded, launched; and the CUDA libraries that ops call."""
