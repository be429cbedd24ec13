"""Softmax and gradients that read rows once: a block keeps the runs that begin in its tile in shared memory, and only long runs are read again."""

from typing import Any

from numba import cuda
from numba.cuda.types import int32, int64, uint32

from ...algebra.gradients import GRADIENTS
from ...core.dtypes import BY_NAME
from ...device.atomics import red_max
from ...device.build import opaque
from ...device.stage import await_copies, commit_copies
from ...kernels.batch import state_kind
from ...runtime import jit
from ...runtime.parameters import Ptr
from ..policy import BroadcastStaged
from .common import clamp
from .pieces import pieces_of
from .shares import find_bounds, has_bit, next_head, shares_of

_await_all = await_copies(0)
#: words of 32 rows whose ids a warp loads before it uses the first
_WORDS = 4


@jit.kernel
def broadcast_staged(
    *, gradient: str, value: str, index: str, row_index: str, vector: int, lanes: int, piece: int,
    threads_per_block: int = BroadcastStaged.threads_per_block, items_per_thread: int = BroadcastStaged.items_per_thread,
) -> Any:  # fmt: skip
    """Folds runs and broadcasts what follows from them to their rows, as ``fold_tiles`` and :func:`broadcast_to_rows` do in two launches.

    A block copies the rows of the runs that begin in its tile to shared memory, up to ``reach`` rows behind it. There each group folds its share of
    the rows, each lane its own ``vector`` columns, and replaces the rows of every run inside it. The first and the last run of a share are combined
    over the groups. The block then stores the rows. A run that crosses tiles and has more than ``reach`` rows is *long*: every tile folds those that
    it has, and leaves a carry, which :func:`fold_carries` combines for :func:`broadcast_long_runs`; where one is, ``guard[0]`` becomes the number of
    carries. Shapes, ids and tile fix the order of every fold.
    Dynamic shared memory: ``stage`` elements for each of x and w, and two bits for each row. Bytes: rows · columns · value read for each of x and w
    and written, and ids; of long runs nothing is written.

    Constants and parameters as :mod:`.` lists them, and

    * ``piece``: elements of a load or store; those of 16 bytes unless rows are permuted
    * ``x``, ``w`` [rows, columns]: what the gradient has of each row, contiguous; ``w`` is any address where it has one operand
    * ``reach``: rows; ``tile`` is a multiple of 8 rows
    """
    grad, element, index_type = GRADIENTS[gradient], jit.SCALARS[value], jit.SCALARS[index]
    permuted, has_w = row_index != "", len(grad.rows) > 1
    shares = shares_of(gradient, value, vector, lanes, threads_per_block, items_per_thread)
    fold_rows, broadcast_rows, scan_shares = shares.fold_rows, shares.broadcast_rows, shares.scan_shares
    combine_left, combine_right, reset, scalars = shares.combine_left, shares.combine_right, shares.reset, shares.scalars
    state_type, groups, words_step = shares.state_type, threads_per_block // lanes, threads_per_block
    pieces, saved_size = pieces_of(value, permuted, piece, threads_per_block), threads_per_block * scalars
    read, write, stage_bytes, width_of_state = pieces.read, pieces.write, len(grad.rows) * BY_NAME[value].itemsize, shares.width

    @jit.device
    def mark_rows(ids: Any, first: Any, count: Any, segments: Any, ids_step: Any, words: Any, heads: Any, insides: Any) -> None:
        """Sets a bit for each row of the window that is a head, and one for each whose id names a segment."""
        own = cuda.local.array(_WORDS, index_type)
        previous = cuda.local.array(_WORDS, index_type)
        begin = int32((cuda.threadIdx.x >> 5) << 5)
        while begin < count:
            for u in range(_WORDS):
                row = first + min(int32(begin + u * words_step + cuda.laneid), count - 1)
                own[u] = ids[row * ids_step]
                previous[u] = ids[max(row - 1, 0) * ids_step]
            for u in range(_WORDS):
                word = int32(begin + u * words_step)
                row = int32(word + cuda.laneid)
                head = cuda.ballot_sync(-1, row < count and (first + row == 0 or own[u] != previous[u]))
                inside = cuda.ballot_sync(-1, row < count and 0 <= own[u] < segments)
                if cuda.laneid == 0 and word < count:
                    words[heads + (word >> 5)] = head
                    words[insides + (word >> 5)] = inside
            begin = int32(opaque(int32(begin + _WORDS * words_step)))

    @jit.device
    def reaches(ids: Any, first: Any, end: Any, reach: Any, ids_step: Any) -> Any:
        """Whether the run that has row ``first``, and ends before row ``first + end``, has more than ``reach`` rows. All threads call it."""
        if end > reach:
            return True
        begin = first + end - 1 - reach
        if begin < 0:
            return False
        same, row = int32(1), begin + cuda.threadIdx.x
        identifier = ids[first * ids_step]
        if ids[begin * ids_step] == identifier:
            while row < first:
                if ids[row * ids_step] != identifier:
                    same = int32(0)
                row += threads_per_block
        else:
            same = int32(0)
        return cuda.syncthreads_and(same) != 0

    def broadcast_staged(
        x: Ptr[value], w: Ptr[value], ids: Ptr[index], permutation: Ptr[row_index or int64], output: Ptr[value],
        guard: Ptr[int32], carry_ids: Ptr[int64], carry_counts: Ptr[int64], carry_states: Ptr[state_kind(grad.fold, value)],
        rows: int64, columns: int64, segments: int64, tile: int64, reach: int64, chunks: int64, stage: int64, ids_step: int64,
    ) -> None:  # fmt: skip
        staged, words = cuda.shared.array(0, element, 16), cuda.shared.array(0, int32, 16)
        saved = cuda.shared.array(saved_size, state_type)
        opens = cuda.shared.array(groups, int32)
        leading = cuda.local.array(scalars, state_type)
        trailing = cuda.local.array(scalars, state_type)
        states = cuda.local.array(scalars, state_type)
        before = cuda.local.array(scalars, state_type)
        behind = cuda.local.array(scalars, state_type)
        block, width = int64(cuda.blockIdx.x), int32(columns)
        first = block * tile
        left = rows - first
        count, height = int32(min(tile + reach, left)), int32(min(tile, left))
        other_at = int32(stage) if has_w else int32(0)
        heads = int32(int32(stage) * stage_bytes >> 2)
        insides = int32(heads + ((tile + reach + 31) >> 5))
        mark_rows(ids, first, count, segments, ids_step, words, heads, insides)
        cuda.syncthreads()
        first_head, last_head, end = find_bounds(words, heads, height, count)
        enters = not has_bit(words, heads, int32(0))
        leads_long = False
        if enters or first_head > height:
            leads_long = reaches(ids, first, first_head, reach, ids_step) if enters else first_head > reach
        trails_long = last_head > 0 and end > height and end - last_head > reach
        begin = int32(0) if leads_long or not enters else first_head
        if trails_long or (leads_long and last_head == 0):
            end = height
        stored, stored_end = int32(min(first_head, height)) if leads_long else begin, last_head if trails_long else end
        if begin < end:
            read(x, permutation, first, columns, staged, int32(0), int32(begin * width), int32(end * width), int32(count * width))
            if has_w:
                read(w, permutation, first, columns, staged, other_at, int32(begin * width), int32(end * width), int32(count * width))
            commit_copies()
            _await_all()
        cuda.syncthreads()
        group = int32(uint32(cuda.threadIdx.x) // uint32(lanes))
        lane = int32(cuda.threadIdx.x - group * lanes)
        # an odd number of rows, so that groups of few columns meet in few banks
        share = int32(uint32(max(end - begin, 0) + groups - 1) // uint32(groups)) | 1
        share_begin = int32(min(begin + group * share, end)) if group < groups else end
        share_end = int32(min(share_begin + share, end))
        last_group = int32(uint32(max(end - begin - 1, 0)) // uint32(share))
        has_rows = share_begin < share_end
        joins, joins_next = False, False
        if has_rows:
            joins = share_begin > begin and not has_bit(words, heads, share_begin)
            joins_next = share_end < end and not has_bit(words, heads, share_end)
        first_end = next_head(words, heads, share_begin, share_end)
        whole = first_end >= share_end
        chunk = int32(0)
        while chunk < chunks:
            column = int32((chunk * lanes + lane) * vector)
            exists = has_rows and column < columns
            row, last_begin = share_begin, share_begin
            reset(leading)
            reset(trailing)
            while exists and row < share_end:
                row_end, at = next_head(words, heads, row, share_end), int32(int32(row * width) + column)
                fold_rows(states, staged, at, int32(other_at + at), width, int32(row_end - row))
                if row == share_begin:
                    for k in range(scalars):
                        leading[k] = states[k]
                if row_end == share_end:
                    last_begin = row
                    for k in range(scalars):
                        trailing[k] = states[k]
                elif row > share_begin:
                    inside = has_bit(words, insides, row)
                    broadcast_rows(states, staged, at, int32(other_at + at), width, int32(row_end - row), inside)
                row = row_end
            scan_shares(trailing, before, saved, opens, group, joins, whole, 1)
            scan_shares(leading, behind, saved, opens, group, joins_next, whole, -1)
            if exists:
                carry_at = (2 * block * columns + column) * width_of_state
                if leads_long and group == 0:
                    for k in range(scalars):
                        carry_states[carry_at + k] = leading[k]
                    if last_head == 0:
                        # the second carry of the only run, which has no rows
                        reset(states)
                        for k in range(scalars):
                            carry_states[carry_at + columns * width_of_state + k] = states[k]
                if trails_long and group == last_group:
                    for k in range(scalars):
                        carry_states[carry_at + columns * width_of_state + k] = trailing[k]
                if joins:
                    combine_left(leading, before)
                if joins_next:
                    combine_right(trailing, behind, 0, 1)
                # the first run of the share, then the last one, if that is another
                edge, row, row_end = int32(0), share_begin, first_end
                while edge < 2:
                    if stored <= row < stored_end:
                        at, inside = int32(int32(row * width) + column), has_bit(words, insides, row)
                        broadcast_rows(leading, staged, at, int32(other_at + at), width, int32(row_end - row), inside)
                    edge = int32(opaque(int32(edge + 1)))
                    row, row_end = last_begin if last_begin > share_begin else stored_end, share_end
                    for k in range(scalars):
                        leading[k] = trailing[k]
            chunk = int32(opaque(chunk + 1))
        if cuda.threadIdx.x == 0:
            leading_id, trailing_id = clamp(ids[first * ids_step], segments), clamp(ids[(first + last_head) * ids_step], segments)
            # of ids in disorder a short run may have the id of a long one
            carry_ids[2 * block] = int64(-1) if trails_long and not leads_long and leading_id == trailing_id else leading_id
            carry_ids[2 * block + 1] = trailing_id
            carry_counts[2 * block] = min(first_head, height) if leads_long else 0
            carry_counts[2 * block + 1] = height - last_head if trails_long else 0
            if leads_long or trails_long:
                red_max(guard, 0, int32(2 * cuda.gridDim.x))
        cuda.syncthreads()
        write(staged, output, permutation, first, columns, int32(stored * width), int32(stored_end * width))

    return broadcast_staged
