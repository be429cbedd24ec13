"""Tables of the mutation run: which tests are to notice a change of a file, and changes that nobody can notice.

Files go by their path in the package, without the folder ``kernels`` of a family.
"""

from __future__ import annotations

#: by file: patterns of cases of test_watched.py, or test files, perhaps with a test's name behind them
TESTS: dict[str, tuple[str, ...]] = {
    "segment/bins": ("bins*",),
    "segment/carries": ("bins", "*, ids outside", "tiles, runs of one row", "tiles, long runs", "ranges in parts*"),
    "segment/common": ("indices and checks", "*, ids outside", "tiles, gaps"),
    "segment/edges": ("tiles, permuted", "tiles, gaps", "tiles, one block*", "tiles, many blocks*", "tiles, runs over tiles", "tiles, long runs"),
    "segment/fold": ("tiles, *", "softmax to 3 columns"),
    "segment/gaps": ("*, gaps", "narrow, ids outside", "bins", "narrow, a gap*"),
    "segment/gather": ("*sum to *", "*mean to *", "flat *", "index of a mean's gradient"),
    "segment/narrow": ("narrow, *", "max to the few that win"),
    "segment/order": ("indices and checks", "index of a sum", "tiles, permuted", "ranges in several tiles"),
    "segment/ranges": ("many ranges", "ranges in several tiles", "one range*", "ranges in parts*"),
    "segment/ranks": ("one range in parts", "ranges in several tiles"),
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
    "loss/assign": ("losses, added to a gradient", "all results of losses*", "losses of halves"),
    "loss/compact": ("losses without ignored rows",),
    "loss/logits": ("losses of halves", "losses"),
    "loss/rows": ("losses", "losses of halves", "all results of losses*", "losses of wide rows"),
    "loss/totals": ("all results of losses", "losses of *", "losses, gradient given"),
    "kernels/batch": ("sum of short rows", "argmax of columns", "sum of columns"),
    "kernels/elements": ("tiles of halves", "losses of halves"),
    "kernels/pivot_tally": ("var of *", "norm2 of *", "logsumexp of *"),
    "kernels/norms": ("norm2 of *columns", "norm2 to 3 columns"),
    "kernels/products": ("prod to *", "zeros in products", "* of products back to columns", "prod back to rows"),
    "kernels/pivots": ("norm2 of *columns", "norm2 of *short rows", "logsumexp of columns"),
    "device/block": ("test_device_block.py",),
    "device/order": ("test_device_order.py",),
    "device/warp": ("test_device_warp.py",),
}  # fmt: skip
#: by file: places that can be changed without anybody noticing, and why
KNOWN: dict[str, dict[str, str]] = {
    "segment/bins": {
        "fold_bins.fold_bins: guard: batch_ids[u] <= last in if 0 <= batch_ids[u] <= last: (1)":
            "saves the load of a row that is there, and that nobody folds",
    },
    "segment/carries": {
        "fold_carries.fold_carries: guard: column < columns in if begin < groups and column < columns:":
            "lanes without a column would park what no lane joins, in places of their own",
    },
    "segment/fold": {
        "fold_tiles.fold_tiles: guard: length > 0 in if length > 0 and first + length == rows:":
            "a group without rows would fill what lies behind the last segment, which is nothing",
    },
    "segment/narrow": {
        "fold_narrow.fold_narrow: guard: length > 0 in segment = clamp(current, segments) if length > 0 else segments":
            "keeps carries in order, which only a run of more than 256 of them wants: too many rows for a test; that of fold_tiles has one",
        "fold_narrow.fold_narrow: guard: length > 0 in if length > 0 and first + length == rows:":
            "a warp without rows would fill what lies behind the last segment, which is nothing",
    },
    "segment/gaps": {
        "short_gap_filler.fill_short_gap: guard: 0 < after - before - 1 in if fills and 0 < after - before - 1 <= GAP:":
            "a gap of no segments, or of fewer, has none to fill",
        "gap_filler.fill_long_gaps: guard: wanted < segments in if wanted < segments:":
            "saves a search: behind the last segment there is no gap, which is looked at next",
        "gap_filler.fill_long_gaps: guard: before < wanted in if before < wanted < after and (after - before - 1 > GAP or rows == 0):":
            "the search ends behind an id that is less than what is wanted, whatever the order of the ids",
        "gap_filler.fill_long_gaps: guard: wanted < after in if before < wanted < after and (after - before - 1 > GAP or rows == 0):":
            "a long gap that ends before what is wanted has nothing to fill from there on",
        "gap_filler.fill_long_gaps: guard: first < last in found = cuda.ballot_sync(-1, first < last)":
            "lanes that have found nothing would have nothing filled",
    },
    "segment/ranges": {
        "fold_ranges.fold_ranges: guard: column < columns in works = column < columns and group < groups":
            "rows are never cut into chunks here: the lanes of a group have as many columns as there are",
        "fold_ranges.fold_ranges: guard: group < groups in if lane == 0 and group < groups:":
            "what idle lanes are would lie behind what groups are, where nobody looks",
    },
}  # fmt: skip
#: tests whose checked runs are to reach every line of every kernel
WATCHED = ("test_watched.py", "test_device_block.py", "test_device_order.py", "test_device_warp.py")
#: (path, function, statement) of lines that they do not reach, and why
UNWATCHED: dict[tuple[str, str, str], str] = {}
