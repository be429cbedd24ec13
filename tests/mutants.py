"""Tables of the mutation run: which tests are to notice a change of a file, and changes that nobody can notice."""

from __future__ import annotations

_TESTS: dict[str, tuple[str, ...]] = {
    "segment/bins": ("bins*",),
    "segment/carries": ("bins", "tiles, long runs", "ranges in parts*"),
    "segment/common": ("indices and checks", "*, ids outside", "tiles, gaps"),
    "segment/edges": ("tiles, permuted", "tiles, gaps", "tiles, runs over tiles", "tiles, long runs"),
    "segment/fold": ("tiles, *", "softmax to 3 columns"),
    "segment/gaps": ("*, gaps", "narrow, ids outside", "bins"),
    "segment/gather": ("*sum to *", "*mean to *", "flat *", "index of a mean's gradient"),
    "segment/narrow": ("narrow, *",),
    "segment/order": ("indices and checks", "index of a sum", "tiles, permuted", "ranges"),
    "segment/ranges": ("many ranges", "ranges", "one range*", "ranges in parts*"),
    "segment/ranks": ("one range in parts", "ranges"),
    "segment/rows": ("atomic *", "indices and checks", "unsorted_mean to 4 columns"),
    "segment/spread": (
        "*max to *", "prod to *", "logsumexp to *", "norm2 to *", "index of a gradient*", "zeros in products",
    ),
    "reduce/access": ("sum of rows of a warp", "sum of peeled columns", "sum of columns", "var of columns"),
    "reduce/columns": ("sum of *columns*", "var of *columns*", "zeros of products back to columns"),
    "reduce/results": ("sum of columns in parts", "var of rows of a block in parts", "sum of staged rows"),
    "reduce/rows": ("sum of rows of *", "var of rows of *", "sum of peeled rows", "var of peeled rows"),
    "reduce/short": ("sum of *short rows", "var of *short rows", "* of staged rows", "* that lie otherwise"),
    "reduce/spread": ("* back to rows*", "* back to columns"),
    "scan/access": ("cumsum of * rows*", "cummax and places of rows", "places of *"),
    "scan/chain": ("cumsum of long *", "logcumsumexp of long *"),
    "scan/columns": ("cumsum of *columns*", "cummax_backward of *columns*"),
    "scan/exponentials": ("logcumsumexp of short rows", "logcumsumexp_backward of short rows"),
    "scan/extremes": ("* and places of columns", "cummax of short rows"),
    "scan/law": ("cummax and places of columns", "* of short rows"),
    "scan/making": ("cumprod_backward of short rows", "cumprod_backward of rows*", "logcumsumexp_backward of rows*", "what comes before in rows"),
    "scan/part": ("cum* of rows in several tiles", "cum* of peeled *", "cummax_backward of short rows", "what comes before in rows"),
    "scan/rows": ("cumsum of short rows", "cumsum of rows in several tiles", "cumsum of long rows*", "cumsum of peeled *"),
    "scan/stack": ("cumsum of *columns*", "cum*_backward of columns*", "logcumsumexp_backward of columns*", "* places of columns", "* in columns"),
    "loss/assign": ("all results of losses*", "losses of halves"),
    "loss/compact": ("losses without ignored rows",),
    "loss/logits": ("losses of halves", "losses"),
    "loss/rows": ("losses", "losses of halves", "all results of losses*", "losses of wide rows"),
    "loss/totals": ("all results of losses", "losses of *", "losses, gradient given"),
}  # fmt: skip
#: by file: patterns of cases of test_watched.py, or test files, perhaps with a test's name behind them
TESTS: dict[str, tuple[str, ...]] = {
    **{f"numba_baracuda/{file.replace('/', '/kernels/')}.py": tests for file, tests in _TESTS.items()},
    "numba_baracuda/kernels/batch.py": ("sum of short rows", "argmax of columns", "sum of columns"),
    "numba_baracuda/kernels/elements.py": ("tiles of halves", "losses of halves"),
    "numba_baracuda/kernels/pivot_tally.py": ("var of *", "norm2 of *", "logsumexp of *"),
    "numba_baracuda/kernels/pivots.py": ("norm2 of *columns", "norm2 of *short rows", "logsumexp of columns"),
    "numba_baracuda/device/block.py": ("test_device_block.py",),
    "numba_baracuda/device/order.py": ("test_device_order.py",),
    "numba_baracuda/device/warp.py": ("test_device_warp.py",),
}
#: (path, function, kind, text) of places that can be changed without anybody noticing, and why
KNOWN: dict[tuple[str, str, str, str], str] = {}
#: tests whose checked runs are to reach every line of every kernel
WATCHED = ("test_watched.py", "test_device_block.py", "test_device_order.py", "test_device_warp.py")
#: (path, function, statement) of lines that they do not reach, and why
UNWATCHED: dict[tuple[str, str, str], str] = {}
