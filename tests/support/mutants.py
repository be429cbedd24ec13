"""Tables of the mutation run: the tests of each file, and mutants that no test can notice.

Files are named by their path in the package, without the folder ``kernels`` of a family.
"""

from __future__ import annotations

_ALONG_ROWS = tuple(f"test_scan.py::test_logcumsumexp_along_rows[numpy-{options}-f32]" for options in ({}, {"initial": 2.0}))
_IN_WARPS = (
    "cum* of rows in several tiles",
    "cum* of *short rows*",
    "places of short rows",
    "cum* of peeled *",
    "cummax_backward of *rows*",
    "what comes before in rows",
    "exponentials of rows*",
    "logcumsumexp_backward of * halves*",
    *_ALONG_ROWS,
)

#: by file: patterns of cases of watched_cases.py, or test files, with ``::test`` for one test
TESTS: dict[str, tuple[str, ...]] = {
    "segment/bins": ("bins*",),
    "segment/bounds": ("bounds, *", "indices and checks", "many ranges", "ranges in several tiles", "ranges in splits*"),
    "segment/carries": ("bins", "*, ids outside", "tiles, long runs", "ranges in splits*", "carries, *"),
    "segment/common": ("indices and checks", "*, ids outside", "tiles, gaps"),
    "segment/counts": ("counts*", "atomic passes, *", "atomic table, mean *"),
    "segment/crowds": ("atomic table, *", *(f"test_crowds.py::{name}" for name in (
        "test_a_block_finds_ids_of_many_rows_only", "test_ids_of_few_rows_make_no_table", "test_ids_that_are_not_for_the_table[bounds0-wanted0]",
        "test_ids_that_are_not_for_the_table[bounds1-wanted1]", "test_ids_that_are_not_for_the_table[bounds2-wanted2]",
        "test_ids_that_are_not_for_the_table[bounds3-wanted3]", "test_a_full_table_has_no_more_ids_than_it_may", "test_neighbours_crowd_together",
    ))),
    "segment/edges": ("tiles, permuted", "tiles, gaps", "tiles, one block*", "tiles, many blocks*", "tiles, runs over tiles", "tiles, long runs",
        "narrow, *", "short runs, *"),
    "segment/lookback": ("look back, *", "test_lookback.py::test_counts_of_runs_over_blocks[fold_narrow]",
        "test_lookback.py::test_runs_over_blocks[5-fold_tiles]", "test_lookback.py::test_ids_out_of_range_over_blocks[fold_tiles]",
        "test_lookback.py::test_a_fold_sets_the_statuses_of_another_call_to_zeros[numpy-fold_tiles]"),
    "segment/columns": ("tiles, *", "norm2 to 7 columns"),
    "segment/first_extremes": (
        "tiles, first rows of halves*", "staged, first rows of halves",
        *(f"test_semantics.py::test_first_rows_of_long_runs[numpy-{case}]" for case in ("segment_argmax-ragged_sorted-bf16-70",
          "segment_argmin-ragged_sorted-f16-3", "unsorted_segment_argmax-ragged_permuted-f16-75")),
    ),
    "segment/fold": ("tiles, *", "softmax to 3 columns"),
    "segment/gaps": ("* apart, *", "*, gaps", "staged, halves between*", "narrow, ids outside", "bins", "narrow, a gap*", "tiles, blocks of gaps*"),
    "segment/gather": ("*sum to *", "*mean to *", "flat *", "index of a mean's gradient"),
    "segment/lift": ("lifted pairs *", "*, side by side"),
    "segment/means": ("single means, *", "test_kernels_by_hand.py::test_a_run_of_millions_of_rows"),
    "segment/narrow": ("narrow, *",),
    "segment/order": ("indices and checks", "softmax of ids*", "index of a sum", "tiles, permuted", "ranges in several tiles"),
    "segment/pivots": ("atomic logsumexp *",),
    "segment/positions": ("atomic first *", "test_first_rows.py::test_positions[numpy-argmax-f64-8-atomic_first]"),
    "segment/ranges": ("ranges in several tiles", "one range*", "ranges in splits*", "ranges, *"),
    "segment/ranks": ("one range*", "ranges in several tiles", "ranges, *"),
    "segment/runs": ("rows in runs, *",),
    "segment/scatter": ("atomic *", "factors *"),
    "segment/updates": ("atomic *", "factors *"),
    "segment/short_runs": ("short runs, *", "test_first_rows.py::test_positions[numpy-argmax-f32-1-ragged_permuted]"),
    "segment/rows": (
        "atomic *", "indices and checks", "unsorted_mean to 4 columns", "sum to 36 columns", "index of a mean*", "norm2 to 7 columns",
        "filled first, *", "winners *",
    ),
    "segment/copies": ("staged, *", "*at once*"),
    "segment/staged": ("staged, *", "std_backward and a staged fold, *", "softmax_backward of 17 columns of bf16 in stages, runs"),
    "segment/states": ("narrow, *", "short runs, *"),
    "segment/open_run": ("narrow, *", "short runs, *", "tiles, *", "staged, *"),
    "segment/sums": (
        "narrow, *", "short runs, *", "tiles, *", "staged, *",
        *(f"test_forward.py::test_variances_of_few_rows[numpy-{columns}]" for columns in (3, 16)),
    ),
    "segment/seams": (
        "ranks: segments in order", "ranks: rows of segments in order", "ranks: positions",
        "test_sharded_rows.py::test_ranks_have_what_one_process_has[segment_mean_backward]",
        "test_sharded_rows.py::test_ranks_have_what_one_process_has[segment_min]", "test_sharded_rows.py::test_a_segment_on_many_ranks[segment_max]",
        "test_sharded_rows.py::test_a_segment_on_many_ranks[segment_logsumexp]",
    ),
    "segment/broadcast": (
        "*max to *", "prod to *", "logsumexp to *", "norm2 to *", "var to *", "* to rows, *", "index of a gradient*", "zeros in products*",
    ),
    "segment/walk": ("staged, *", "softmax_backward of 17 columns of bf16 in stages, runs", "var_backward *in stages*"),
    "segment/winners": ("winners *", "max to 1 columns"),
    "segment/flat": ("* to tiles of *", "* to tiles, *", "softmax of tiles of *", "* too long for one launch"),
    "segment/fused": ("* at once, *", "* too long for one launch"),
    "segment/long_runs": ("* at once, *", "* too long for one launch", "* in stages*"),
    "segment/small": ("* together, *",),
    "segment/fused_short": ("* in registers*",),
    "segment/fused_staged": ("* in stages*",),
    "segment/held_runs": ("* at once, *",),
    "segment/in_place": ("*softmax at once, *", "* in stages*"),
    "reduce/loads": (
        "sum of rows of a warp", "var of peeled rows", "sum of peeled columns", "sum of columns*", "var of columns", "* that lie apart",
        "*halves in such columns",
    ),
    "reduce/columns": ("sum of *columns*", "var of *columns*", "zeros of products back to columns", "test_passes.py::test_far_from_zero",
        "test_passes.py::test_places_and_truth[numpy-reduce_argmin-shape6-1]"),
    "reduce/results": (
        "sum of columns in splits", "var of rows of a block in splits", "sum of staged rows", "* in a single pass", "* combined in parts",
        "test_passes.py::test_places_and_truth",
    ),
    "reduce/lines": ("* of lines*", "* columns in lines"),
    "reduce/rows": ("sum of rows of *", "var of rows of *", "sum of peeled rows", "var of peeled rows", "var of nothing*"),
    "reduce/short": ("sum of *short rows", "var of *short rows", "* that lie otherwise", "var of nothing"),
    "reduce/staged": ("* of staged *", "* back to staged rows*", "var of nothing", "test_reduce.py::test_several_short_rows_of_a_group"),
    "reduce/line_walk": ("* staged lines*",),
    "reduce/staged_lines": ("* staged lines*",),
    "reduce/ordered": ("*rows of a * in order",),
    "reduce/broadcast": (
        "* back to *rows", "* back to rows in splits", "* back to rows that are read twice", "* back to columns", "* back to columns whose walks*",
        "test_passes.py::test_far_from_zero",
    ),
    "reduce/whole": ("* back to *whole columns*", "* back to *held columns*"),
    "reduce/held": ("* of held *", "* back to columns of a thread", "sum of columns that wrap*", "test_held.py::test_variance_far_from_zero"),
    "reduce/held_by_groups": ("* back to * a * holds*",),
    "reduce/held_gradients": ("* back to columns of a thread", "* back to rows of *a thread"),
    "reduce/dense": ("* back to dense *", "test_dense.py::test_operands_that_begin_inside_a_vector"),
    "reduce/vjp": ("* back to *rows", "* back to staged rows*", "* back to rows in splits", "* back to columns"),
    "scan/shared_tile": (
        "cumsum of * rows*", "cummax and places of rows", "places of *", "what comes before in rows", "logcumsumexp_backward of rows*",
    ),
    "scan/lookback": ("cumsum of long *", "logcumsumexp of long *"),
    "scan/columns": ("cumsum of *columns*", "cummax_backward of *columns*"),
    "scan/levels": ("cumsum of *columns*", "cummax_backward of *columns*"),
    "scan/dense_tile": ("* of *dense columns*",),
    "scan/exponentials": (
        "logcumsumexp of short rows", "logcumsumexp_backward of short rows", "logcumsumexp_backward of * halves*", "exponentials of rows*",
        *_ALONG_ROWS,
    ),
    "scan/extremes": ("* and places of columns", "cummax of short rows"),
    "scan/operator_functions": ("* places of columns", "places of columns *", "* of short rows"),
    "scan/load_transform": (
        "cumprod_backward of *short rows", "cumprod_backward of rows*", "logcumsumexp_backward of rows*", "what comes before in rows",
    ),
    "scan/scattered_store": ("cummax_backward of *rows*",),
    "scan/gathered_store": ("cummax_backward of *rows*",),
    "scan/warp_tile": _IN_WARPS,
    "scan/warp_inputs": _IN_WARPS,
    "scan/rows": ("cumsum of *short rows*", "cumsum of rows in several tiles", "cumsum of long rows*", "cumsum of peeled *"),
    "scan/slices": ("* slices*",),
    "scan/slabs": ("* slabs*",),
    "scan/slab_tile": ("cumsum of slabs*",),
    "scan/slab_walk": ("*_backward of slabs*", "what comes before in slabs*"),
    "scan/products": ("cumprod_backward of slabs of halves",),
    "scan/slab_runs": ("cumm*_backward of slabs*", "what wins before in slabs"),
    "scan/column_tile": (
        "cummax_backward of *columns*", "cumsum of *columns*", "cumprod_backward of columns*", "cumprod_backward of short columns",
        "* places of columns", "what * in columns",
    ),
    "loss/assign": ("losses, added to a gradient", "all results of losses*", "losses of halves"),
    "loss/compact": ("losses without ignored rows", "test_loss_numbers.py::test_rows_that_are_left_out_may_hold_anything"),
    "loss/logits": ("losses of halves", "losses of wide rows", "losses and entropies of rows", "test_loss.py::test_what_else_is_returned"),
    "loss/prefetch": ("losses", "losses of wide rows"),
    "loss/rows": (
        "losses", "losses side by side", "losses of *", "losses and *", "all results of losses*", "test_loss.py::test_numbers_that_are_none",
        "test_loss_numbers.py::test_numbers_at_their_ends[numpy-plain-f32]",
    ),
    "loss/row_functions": ("losses of *", "all results of losses*", "ranks: losses*"),
    "loss/shards": ("ranks: losses*", "test_vocab_parallel.py::test_numbers_that_are_none"),
    "reduce/merge": ("ranks: variances", "ranks: segments", "ranks: rows of segments", "ranks: back to *"),
    "loss/totals": (
        "ranks: counted losses", "all results of losses", "losses of halves", "losses of rows", "losses, gradient given",
        "test_loss.py::test_nothing_counts",
    ),
    "kernels/arrivals": ("* in a single pass",),
    "kernels/batch": ("sum of short rows", "argmax of columns", "sum of columns"),
    "kernels/elements": (
        "tiles of halves", "zeros of products back to columns", "sum of columns to a strided result", "test_nonfinite.py::test_reductions",
    ),
    "kernels/pivot_accumulator": ("var of *", "norm2 of *", "logsumexp of *"),
    "kernels/factors": (
        "factors *", "test_semantics.py::test_gradient_of_products_out_of_the_range", "test_nonfinite.py::test_segments[numpy-unsorted_-prod-short]",
    ),
    "kernels/norms": ("norms in tiles", "test_semantics.py::test_norms_near_the_limits",),
    "kernels/products": (
        "prod to *", "* in products", "test_semantics.py::test_gradient_of_products_out_of_the_range",
        *(f"test_nonfinite.py::test_segments[numpy-unsorted_-prod-{length}]" for length in ("short", "long")),
    ),
    "kernels/pivots": (
        "norm2 of *columns", "logsumexp of columns", "test_reduce.py::test_norms_near_the_limits", "test_reduce.py::test_infinities_and_nan",
        "test_reduce.py::test_sizes_that_change_along_the_way", "test_nonfinite.py::test_reductions",
    ),
    "device/block": ("test_device_block.py",),
    "device/order": ("test_device_order.py",),
    "device/warp": ("test_device_warp.py",),
}  # fmt: skip
#: by file: mutants that no test can notice, and why
KNOWN: dict[str, dict[str, str]] = {
    "kernels/factors": {
        "word_of: guard: half >= 0 in return int64(2 * int64(half + (0.5 if half >= 0 else -0.5)) + odd)":
            "rounds the other way, to the next word but one at most",
        "add_tally: guard: load_relaxed(sums, 2 * at + 1) >> shift & _TALLY < 2 in if load_relaxed(sums, 2 * at + 1) >> shift & _TALLY < 2:":
            "keeps counts in their bits, which only millions of zeros leave: too many for a test",
    },
    "segment/bins": {
        "fold_bins.fold_bins: guard: batch_ids[u] <= last in if 0 <= batch_ids[u] <= last: (1)":
            "saves the load of a row that is there, and that nobody folds",
    },
    "segment/counts": {
        "count_few_ids.count_few_ids: guard: counted > 0 in if counted > 0:": "saves an update that adds 0",
        "count_ids.count_ids: guard: found > 0 in if keys[slot] >= 0 and found > 0:": "saves an update that adds 0",
    },
    "segment/crowds": {
        "table_of.find: guard: sectors[u] >= 0 in if sectors[u] >= 0 and cuda.atomic.add(numbers, slot_of(sectors[u]), int32(1)) == least_rows - 1:":
            "counts rows that are not for the table in a slot, which gets no ids by them",
        "table_of.find: guard: sectors[u] >= 0 in if sectors[u] >= 0 and keys[slot_of(sectors[u])] == sectors[u]:":
            "numbers a slot without ids, too",
        "table_of.find: guard: sectors[u] >= 0 in found |= sectors[u] >= 0 and keys[slot] == sectors[u] and (numbers[slot] >> 16 >= least_rows)":
            "makes tables of fewer ids, which gives the same",
        "table_of.find: guard: numbers[slot] >> 16 >= least_rows in "
        "found |= sectors[u] >= 0 and keys[slot] == sectors[u] and (numbers[slot] >> 16 >= least_rows)":
            "makes tables of fewer ids, which gives the same",
    },
    "segment/fold": {
        "tile_folder_of.fold_tile: guard: length > 0 in if length > 0 and first + length == rows:":
            "a group without rows would fill what lies behind the last segment, which is nothing",
        "tile_folder_of.fold_tile: guard: past >= 0 in if past >= 0 and int32(folded ^ past) > past:":
            "holds whenever the other one does, where unroll is a power of two",
        "tile_folder_of.fold_tile: guard: int32(folded ^ past) > past in if past >= 0 and int32(folded ^ past) > past:":
            "recentres after every batch, which takes longer",
    },
    "segment/fused": {
        "fold_and_broadcast_runs.fold_and_broadcast_runs: guard: warp <= last_vote in if all_look or warp <= last_vote: (1)":
            "saves loads of ids that no vote is about",
        "fold_and_broadcast_runs.fold_and_broadcast_runs: guard: warp <= last_vote in if all_look or warp <= last_vote: (2)":
            "saves votes of warps that have no heads",
        "fold_and_broadcast_runs.fold_and_broadcast_runs: guard: ahead < count in if ahead < count:":
            "what is written behind the last row nobody reads",
        "fold_and_broadcast_runs.fold_and_broadcast_runs: guard: begun >= 0 in if begun >= 0 and found == 0:":
            "saves to look at rows of other blocks once more, where no run begins in the tile",
        "fold_and_broadcast_runs.fold_and_broadcast_runs: guard: 0 <= segment in segment, turn, length = "
        "(segment if 0 <= segment < segments else int64(-1), int32(warp * 32), int32(position - begun))":
            "a negative id stays one, and is asked for nothing else",
        "fold_and_broadcast_runs.fold_and_broadcast_runs: guard: 0 <= segment in segment = segment if 0 <= segment < segments else int64(-1)":
            "a negative id stays one, and is asked for nothing else",
    },
    "segment/fused_staged": {
        "fold_and_broadcast_staged.fold_and_broadcast_staged: guard: int32(number - lane) < runs in if int32(number - lane) < runs:":
            "saves what a warp does for runs that there are not",
        "fold_and_broadcast_staged.fold_and_broadcast_staged: fence: await_rows() before return":
            "what is on its way when the block ends is for shared memory that nobody reads",
    },
    "segment/held_runs": {
        "run_folder_of.fold_run: guard: level > 0 in if level > 0 and (not about_pivots):": "saves to exchange results where no lanes share a run",
    },
    "segment/short_runs": {
        "fold_short_runs.fold_short_runs: guard: unsigned(one_id[0] - current) > unsigned(2 * count) in "
        "gappy = in_ranges and unsigned(one_id[0] - current) > unsigned(2 * count)":
            "the warp would fill ranges where few segments are empty, too",
        "fold_short_runs.fold_short_runs: barrier: cuda.syncwarp() at the end of if headed != 0:":
            "orders memory: shuffles of the next step, which do not, meet all lanes before any stores",
    },
    "segment/states": {
        "elements_storer.store_elements: barrier: cuda.syncwarp() at the end of @jit.device":
            "orders memory: ballots of the next turn, which do not, meet all lanes before any stores",
    },
    "segment/staged": {
        "fold_staged.fold_staged: guard: unsigned(final - current) > unsigned(2 * heads) in "
        "gappy = in_ranges and unsigned(final - current) > unsigned(2 * heads)":
            "the warp would fill ranges where few segments are empty, too",
        "fold_staged.fold_staged: guard: number < heads in owns = number < heads and share == 0 and (column == 0)":
            "the gap behind the last run, whose end is not known, would be taken for a long one, and others be filled one by one",
        "fold_staged.fold_staged: guard: turn < first_end in if turn < first_end or turn >= last_begin:":
            "looks in every turn which lanes have the first or the last run, which takes longer",
        "fold_staged.fold_staged: guard: turn >= last_begin in if turn < first_end or turn >= last_begin:":
            "looks in every turn which lanes have the first or the last run, which takes longer",
        "fold_staged.fold_staged: guard: its_rows > 0 in if its_rows > 0 and unsigned(identifier) < most:":
            "stores what a part of a run gives, which is overwritten by what the run gives when the edges are combined",
    },
    "segment/edges": {
        "edge_functions_of.combine_edges: guard: edge_counts[edge] > 0 in if edge_counts[edge] > 0:":
            "combines with the states of no rows, which change nothing, and takes longer",
        "tile_end_of.end: guard: length > 0 in if length > 0 and first + length == rows:":
            "a warp without rows would fill what lies behind the last segment, which is nothing",
    },
    "segment/lookback": {
        "run_finisher_of.finish_runs: guard: edge_counts[edge] > 0 in if edge_counts[edge] > 0:":
            "combines with the states of no rows, which change nothing, and takes longer",
        "run_finisher_of.finish_runs: guard: block + 1 < row_blocks in if end == last and block + 1 < row_blocks:":
            "the last block would publish what nobody waits for",
        "run_finisher_of.finish_runs: guard: first > start in while begun and first > start:":
            "the status of a span would be that of its last run from where it begins, which takes longer",
    },
    "segment/sums": {
        "PivotedRun.append_batch.append: guard: before < rows in if not settled and before < rows:": "recentres with every batch, which takes longer",
        "PivotedRun.begin_batch.begin: guard: inside > 0 in origin, distance = (widen(elements[v]) if inside > 0 else kind(0), kind(0))":
            "a run of no rows would have an element of another as its pivot, which changes nothing where that is finite",
        "PivotedRun.begin_batch.begin: guard: u < inside in if u < inside:":
            "any pivot among the rows will do: behind the last row it is there again, and draws the pivot to it",
        "PivotedRun.__init__.close_shared: guard: shares > 1 in if shares > 1:": "saves a change of the pivot to itself",
        "PivotedRun.__init__.close_shared: guard: own > 0 in if own > 0:":
            "sums of no rows stay 0 about any pivot that is finite, and are NaN about others, as those of its rows are",
    },
    "segment/positions": {
        "scatter_positions.scatter_positions: guard: batch_ids[u] < segments in if 0 <= batch_ids[u] < segments: (1)":
            "saves the load of a row that is there, and that nobody compares",
        "scatter_positions.scatter_positions: guard: row < load_relaxed(positions, at + v) in "
        "if (x == extreme or (x != x and extreme != extreme)) and row < load_relaxed(positions, at + v):":
            "saves an update that changes nothing",
    },
    "segment/scatter": {
        "scatter_rows.scatter_rows: guard: cuda.popc(cuda.ballot_sync(-1, seen_id == frequent)) >= crowd in "
        "crowded = cuda.popc(cuda.ballot_sync(-1, seen_id == frequent)) >= crowd and least <= frequent <= last":
            "folds rows that are no crowd alike, with more work",
        "scatter_rows.scatter_rows: guard: batch_ids[u] <= last in if least <= batch_ids[u] <= last: (1)":
            "saves the load of a row that is there, and that nobody adds",
    },
    "segment/bounds": {
        "_first_of_half: guard: low < high in less = cuda.ballot_sync(-1, low < high and int64(sorted_numbers[probe * step]) & mask < least_number)":
            "a half that is done looks at what it has found again; that past the end is found last",
        "_gap_filler.fill_gaps: guard: length > 0 in found = cuda.ballot_sync(-1, length > 0)": "lanes without a gap fill nothing",
        "bound_short_segments.bound_short_segments: guard: unsigned(batch[u] - before[u]) > unsigned(1) in "
        "gaps |= unsigned(batch[u] - before[u]) > unsigned(1)": "looks for gaps where there are none",
        "bound_short_segments.bound_short_segments: guard: length[u] > LANE_GAP in many |= length[u] > LANE_GAP":
            "looks for gaps where there are none",
    },
    "segment/means": {
        "_reach_of_half: guard: inside > 0 in low, high = (base + (width * (inside - 1) >> 4) if inside > 0 else low, base + (width * inside >> 4))":
            "goes on from a row of the run that lies further in it",
    },
    "scan/slab_tile": {
        "SlabTile._pieces.begin_copy: guard: at < int32(begin + own) in if at < int32(begin + own):": "copies a vector more, which nobody reads",
        "SlabTile._pieces.begin_copy: guard: own > pitch - 2 * vector in "
        "if own > pitch - 2 * vector and (rows - 1) * row_size + pitch <= limit:": "copies some vectors more, which nobody reads",
    },
    "scan/slab_walk": {
        "SlabWalk._walks.fold: guard: rest > 0 in if rest > 0:": "no element is left, which is found out one by one",
        "SlabWalk._walks.scan: guard: rest > 0 in if rest > 0:": "no element is left, which is found out one by one",
    },
    "scan/column_tile": {
        "ColumnTile._load_positions.load: guard: s < steps - 1 in "
        "neighbour = widen(adjacent[v]) if s == steps - 1 and (not remakes) else widen(raw_c[k + vector if s < steps - 1 else k])":
            "keeps an index inside that is looked at elsewhere only; the compiler unrolls both ways",
        "ColumnTile._load_positions.load: guard: s > 0 in neighbour = widen(adjacent[v]) if s == 0 else widen(raw_c[k - vector if s > 0 else k])":
            "keeps an index inside that is looked at elsewhere only; the compiler unrolls both ways",
        "ColumnTile._fold_positions.fold: guard: start + s < extent in if whole or start + s < extent:":
            "elements behind the end would be folded again, and nothing comes after them",
    },
    "scan/scattered_store": {
        "scattered_store_of.store: guard: k < bounds[1] in won = (after[1] == lifted[1]) & (k < bounds[1]) & in_row(s, k, bounds)":
            "behind the end lie elements of the row again, none of which wins against the greatest of all",
        **{
            f"scattered_store_of.store: guard: {link} in if (combine(before_all, (extreme, position_type(0), total, total))[1] == 0) | "
            "(bounds[0] > index) | (bounds[1] <= int32(index + vector)):":
                "a vector that could be left out would be searched element by element, and none of them wins"
            for link in ("bounds[0] > index", "bounds[1] <= int32(index + vector)")
        },
    },
    "scan/rows": {
        "scan_rows.scan_rows: guard: end < safe + vector in if segmented and end < safe + vector:":
            "idle lanes would load another vector that is there, and that nobody uses",
        "scan_long_rows.prefetch_tile: guard: int32(cuda.threadIdx.x) * line < tile_size in if int32(cuda.threadIdx.x) * line < tile_size:":
            "more would be prefetched, which changes nothing",
        "scan_long_rows.scan_long_rows: guard: later_row < rows in if later_row < rows:":
            "more would be prefetched, which changes nothing",
    },
    "scan/lookback": {
        "Lookback._arrival_order.look_back: guard: candidate >= 0 in if looking and lane >= last_prefix and (candidate >= 0):":
            "lanes before the one that looks at the first tile, whose word has all, take nothing",
        "Lookback._arrival_order.look_back: guard: tile > 0 in "
        "lane, window_end, prefix, looking = (thread & lanes - 1, tile, identity(), active and tile > 0)":
            "the first tile would look at its own word, which is written, and take nothing of it",
    },
    "loss/prefetch": {
        **{
            f"prefetch_of.prefetch_vectors: guard: {link}": "other lines would be prefetched, which changes nothing"
            for link in (
                "warp_lane < count * lines_per_warp in if warp_lane < count * lines_per_warp:",
                "column < vector_end in if column < vector_end:",
                "next_base >= 0 in if next_base >= 0 and 0 <= column - sweep_end < vector_end:",
                "0 <= column - sweep_end in if next_base >= 0 and 0 <= column - sweep_end < vector_end:",
                "column - sweep_end < vector_end in if next_base >= 0 and 0 <= column - sweep_end < vector_end:",
            )
        },
    },
    "loss/rows": {
        "cross_entropy_rows.cross_entropy_rows: guard: index + grid_stride < rows in "
        "next_base = base + grid_stride * row_stride if index + grid_stride < rows else int64(-1)":
            "other lines would be prefetched, which changes nothing",
    },
    "loss/shards": {
        "row_statistics.row_statistics: reset: statistics[at + cuda.threadIdx.x] = wide(0)":
            "ranks exchange these numbers, and no rank reads them",
        "row_gradients.row_gradients: guard: target_class >= 0 in if target_class >= 0: (1)": "the numbers of a row that is left out are not used",
        "row_gradients.row_gradients: guard: target_class >= 0 in if target_class >= 0: (2)": "the logits of a row that is left out are not used",
    },
    "loss/totals": {
        "total_targets.total_targets: guard: counted > 0 in "
        "per_loss = (wide(1) / divisor if counted > 0 else wide(0)) if mean else wide(int32(counted > 0)) (2)":
            "every loss and gradient is 0 there, whatever multiplies it",
    },
    "loss/compact": {
        "target_class_of: guard: 0 <= target_class in "
        "return target_class if target_class != ignore and 0 <= target_class < classes else int64(-1)":
            "callers treat every negative class as none",
    },
    "loss/logits": {
        "state_updates_of.adder.add_vectors: guard: s < valid in if s < valid: (1)":
            "vectors after the end read elements again, of which the greatest is known already",
    },
    "reduce/merge": {
        "merge_states.origin_at: guard: abs(origin) < kind(infinity) in return origin if abs(origin) < kind(infinity) else kind(0)":
            "a row whose first element is infinite on one rank has no variance, whatever the origin",
    },
    "device/block": {
        "_block_scan.block_scan: guard: cuda.threadIdx.x >= 32 in if cuda.threadIdx.x >= 32 and (lane > 0 or not exclusive):":
            "the first warp would combine the identity, which changes nothing",
    },
    "kernels/batch": {
        "_with_positions.batch: guard: s < valid in if s < valid:": "vectors after the end read elements again, which win no tie with themselves",
        "_with_positions.batch: guard: valid > 0 in return state if valid > 0 else identity()":
            "vectors after the end read elements again, which win no tie with themselves",
    },
    "kernels/pivot_accumulator": {
        "PivotAccumulator._over_vectors.choose_over: guard: s < valid in if s < valid:":
            "vectors after the end read elements again, of which a pivot is chosen already",
    },
    "segment/winners": {
        "scatter_to_winners.scatter_to_winners: guard: row < rows in if 0 <= row < rows:":
            "the fold leaves indices of rows, or less than 0 where a segment has none",
    },
    "reduce/loads": {
        "split_of: guard: splits > 1 in row_block = int64(uint32(block) // uint32(splits)) if splits > 1 else block":
            "saves a division by 1",
    },
    "reduce/columns": {
        "fold_columns.fold_columns: guard: others > 0 in turned = row_lane == 0 and others > 0":
            "loads the elements of a whole vector one by one",
        "columns_fold.fold: guard: high - low < vector in if peeled and high - low < vector: (1)":
            "single elements are the same; vectors are faster",
        "columns_fold.fold: guard: high - low < vector in if peeled and high - low < vector: (2)":
            "single elements are the same; vectors are faster",
        "columns_tree.combine_lanes: guard: half <= row_lane in if half <= row_lane < 2 * half:":
            "lanes of the lower half would store what nobody reads, and overwrite it before anybody does",
    },
    "reduce/short": {
        "fold_short_rows.fold_short_rows: guard: group < rows_here in if lane < height and group < rows_here:":
            "saves a division: every row asks once more before it is written",
    },
    "reduce/staged": {
        "group_fold_of.fold: guard: extent > 0 in if subtracts_origin and extent > 0:": "rows of no elements go as columns",
    },
    "reduce/staged_lines": {
        "fold_and_broadcast_staged_lines.fold_and_broadcast_staged_lines: guard: row < rows_here in "
        "state = fold(staged, at, int32(lines), int32(line), int32(pitch), row < rows_here, lane)":
            "a group without a row would fold the last one once more, and write nothing",
    },
    "scan/columns": {
        "scan_columns.scan_columns: barrier: cuda.syncthreads() at the end of if alone and (not whole):": "keeps warps together, for memory's sake",
    },
    "reduce/held": {
        "fold_held_columns.fold_held_columns: guard: p < pieces - 1 in if p < pieces - 1:": "saves the place of a piece that is not there",
        "places_of.go_on: guard: found[inner] >= kept_shape[inner] in if found[inner] >= kept_shape[inner]:":
            "saves a division where the next piece lies on the same line",
        "fold_held_rows.fold_held_rows: guard: whole < rows in if height > 1 and cuda.blockIdx.x == 0 and (whole < rows):":
            "no row is left over, so the block would fold the last one again, and store nothing",
    },
    "reduce/whole": {
        "fold_and_broadcast_columns.fold_and_broadcast_columns: guard: sure < count in if sure < count:":
            "a lane without further vectors would choose a pivot once more, and add nothing about it",
    },
    "reduce/held_by_groups": {
        "held_share.fold: guard: left > 0 in if left > 0:": "a lane without last vectors would choose a pivot once more, and add nothing about it",
    },
    "reduce/held_gradients": {
        "broadcast_held_columns.broadcast_held_columns: guard: p < pieces - 1 in if p < pieces - 1:": "saves the place of a piece that is not there",
    },
    "reduce/broadcast": {
        "broadcast_columns.broadcast_columns: guard: others > 0 in turned = row_lane == 0 and others > 0":
            "stores the elements of a whole vector one by one",
        "fold_and_broadcast_rows.fold_and_broadcast_rows: guard: row < rows in "
        "row_p_q = fold_row(x, x_offset, row < rows, extent, lane, corrected_count, shape, x_strides)":
            "a group without a row would fold the last one once more, and write nothing",
        "fold_and_broadcast_rows.fold_and_broadcast_rows: guard: row < rows in "
        "p_q = fold_row(x, x_offset, row < rows, extent, lane, corrected_count, shape, x_strides)":
            "a group without a row would fold the last one once more, and write nothing",
    },
    "segment/gaps": {
        "share_blocks: guard: blocks - row_blocks <= FEW_BLOCKS in "
        "block = int64(number) + (row_blocks if blocks - row_blocks <= FEW_BLOCKS else int64(0))":
            "blocks that look for gaps may begin first or last",
        "short_gap_fillers.fill_short_gap: guard: 0 < after - before - 1 in if fills and 0 < after - before - 1 <= longest:":
            "a gap of no segments, or of fewer, has none to fill",
        "flat_gap_filler.fill_flat: guard: count > unsigned(longest) in "
        "together = cuda.ballot_sync(-1, owns and count > unsigned(longest)) == 0":
            "gaps would be filled one by one",
        "gap_filler.fill_long_gaps: guard: vector << bits < columns in while bits < 5 and vector << bits < columns:":
            "a warp with one row at a time stores the same",
        "gap_filler.fill_long_gaps: guard: probe < segments in if cuda.laneid < probes and probe < segments:":
            "saves a search: behind the last segment there is no gap, which is looked at next",
        "gap_filler.fill_long_gaps: guard: cuda.laneid < probes in if cuda.laneid < probes and probe < segments:":
            "other lanes would have the probes of other warps, and store the same",
        "gap_filler.fill_long_gaps: guard: before < probe in if before < probe < after and (after - before - 1 > longest or rows == 0):":
            "the search ends behind an id that is less than the probe, whatever the order of the ids",
        "gap_filler.fill_long_gaps: guard: probe < after in if before < probe < after and (after - before - 1 > longest or rows == 0):":
            "a long gap that ends before the probe has nothing to fill from there on",
        "gap_filler.fill_long_gaps: guard: first < last in found = cuda.ballot_sync(-1, first < last)":
            "lanes that have found nothing would have nothing filled",
    },
    "segment/ranges": {
        "fold_ranges.fold_ranges: guard: thread < rest in "
        "key = key_of(ids[(first + min(thread, int32(rest - 1))) * step], lowest, thread < rest) if rest > 0 else int32(-1)":
            "folds the rows of an id as a crowd, which gives the same",
        "fold_ranges.fold_ranges: guard: cuda.syncthreads_count(int32(key == crowd)) < THREADS // 2 in "
        "if cuda.syncthreads_count(int32(key == crowd)) < THREADS // 2:": "folds the rows of an id as a crowd, which gives the same",
        "fold_ranges.fold_ranges: barrier: cuda.syncthreads_count(int32(key == crowd))": "others come before the word is written again",
        "fold_ranges.fold_ranges: barrier: cuda.syncthreads() before if crowd >= 0:":
            "what is written before it is read behind one of the others, in the first tile and between tiles",
        "fold_ranges.fold_ranges: guard: crowd >= 0 in if crowd >= 0: (2)": "leaves out tiles without rows, too",
        "fold_ranges.fold_ranges: guard: keys[k] >= 0 in others |= keys[k] >= 0": "orders no rows, which changes nothing",
        "fold_ranges.fold_ranges: guard: cuda.popc(cuda.ballot_sync(-1, kind == MIDDLE)) >= CROWD in "
        "if together > 1 and cuda.popc(cuda.ballot_sync(-1, kind == MIDDLE)) >= CROWD:": "combines the same states, sooner or later",
        "fold_ranges.fold_ranges: barrier: cuda.syncwarp() before if leads: (2)": "no group that leads reads what another one writes",
        "fold_ranges.fold_ranges: guard: column < columns in works = column < columns and group < groups":
            "rows are never cut into chunks here: the lanes of a group have as many columns as there are",
        "fold_ranges.fold_ranges: guard: group < groups in if lane == 0 and group < groups:":
            "idle lanes would store after the slots of groups, which nobody reads",
    },
}  # fmt: skip
#: tests whose checked runs must reach every line of every kernel
WATCHED = ("test_watched.py", "test_device_block.py", "test_device_order.py", "test_device_warp.py")
#: (path, function, statement) of lines that they do not reach, and why
UNWATCHED: dict[tuple[str, str, str], str] = {
    ("numba_baracuda/scan/kernels/shared_tile.py", "SharedTile.__init__.blocked_offset", "return swizzled_offset(lane, int32(lane * steps + s))"):
        "no tiling gives a lane more bytes of an array than a line has, so that a lane has no more vectors than a line",
}  # fmt: skip
