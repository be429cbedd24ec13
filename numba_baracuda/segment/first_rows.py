"""What atomics know that look for the first row which has an extreme. Kernels and launches share it. Imports no Numba."""

FIRST = ("first_max", "first_min")  #: updates that find the extreme and its row at once
EXTREMES = ("max", "min", *FIRST)  #: updates that seldom change what they find
NO_CANDIDATE = -(1 << 63)  #: less than any word of a value and its row
NO_ROW_BYTE = 0x7F  #: every byte of a position that no row has
NO_ROW = int.from_bytes(bytes([NO_ROW_BYTE]) * 4, "little")  #: such a position. There are fewer rows.
