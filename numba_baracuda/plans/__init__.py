"""From a descriptor to launches: the choice of a variant, the checks of operands, and the functions made of it."""
