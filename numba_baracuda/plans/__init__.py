"""From a descriptor to launches: chooses a variant, checks operands, and makes the public functions."""
