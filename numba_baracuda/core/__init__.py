"""What an op is, without arrays, devices or kernels: nothing here imports the rest of the package."""
