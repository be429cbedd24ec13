"""Gradients of folds, and softmax, of short segments in one launch: a block holds their rows, folds them, and stores what becomes of them."""

from typing import Any

from numba import cuda
from numba.cuda.types import int32, int64, uint16, uint32

from ...algebra.gradients import GRADIENTS
from ...core.dtypes import BY_NAME
from ...device.build import opaque, pointer_at
from ...device.order import start_number
from ...device.stage import await_copies, commit_copies
from ...kernels.elements import accumulator_type
from ...runtime import jit
from ...runtime.parameters import Ptr, Scalar
from ..policy import FoldAndBroadcast
from .common import half_row_of
from .copies import begin_copies
from .held_runs import NO_RUN, far_storer_of, held_given_of, run_folder_of
from .in_place import replacer_of, rows_storer_of
from .long_runs import FOUND, all_looked, begin_looked, looker_of


@jit.kernel
def fold_and_broadcast_runs(
    *, gradient: str, value: str, index: str, vector: int, unit: int, in_place: bool, rows_per_thread: int,
    threads_per_block: int = FoldAndBroadcast.threads_per_block, items_per_thread: int = FoldAndBroadcast.items_per_thread,
) -> Any:  # fmt: skip
    """What :func:`broadcast_to_rows` stores after a fold by :func:`fold_tiles`, for ids in order, in one launch.

    A block takes the runs that begin among the ``tile`` rows of its tile. It looks at ``room`` rows at a time, from the first row that is not done
    on, lists where runs begin among them, and copies up to ``most`` that end there to shared memory, by 16 bytes. Then each lane folds ``vector``
    columns of a run, or of every 2ⁿ-th row of it where runs are few, and such lanes combine their states in a tree; what elements are given of that
    goes to shared memory, too, and the block stores what becomes of the rows. ``in_place`` a lane walks its rows twice, to choose pivots and to add
    up, and then replaces them. A run of more than ``room`` rows is read twice from global memory, the second time from the caches. The first
    ``lookers`` blocks have no tile: they look for a run of ``span`` rows or twice as many, for which a block alone would take too long, and set
    ``guard[0]`` if there is one; then the launch stores nothing. Dynamic shared memory: see
    :func:`~..staged_tiling.held_bytes`. Bytes: rows · (columns · value of each operand + index) read, and rows · columns · value written.

    Constants and parameters as :mod:`.` lists them, and ``x``, ``w``, ``g`` and ``y`` as in :func:`broadcast_to_rows`, all contiguous, as are ids;

    * ``items_per_thread``: rows that a lane loads before it uses the first
    * ``in_place``: with a fold about a pivot that elements choose
    * ``vector``: 2 of rows that are no vectors, ``in_place``: columns that are ``width`` apart
    * ``unit``: elements of a row that a thread stores at a time, of which rows are a multiple
    * ``rows_per_thread``: rows among which a thread looks for heads; ``room`` is less than all threads have
    * ``guard`` [2]: zeros; ``span``: see :func:`~.long_runs.looker_of`
    * ``width``: lanes that have a row; ``reciprocal`` and ``row_reciprocal``: :func:`~..tiling.half_reciprocal_of` it, and of ``columns``
    """
    element, wide, grad, threads = jit.SCALARS[value], accumulator_type(value), GRADIENTS[gradient], threads_per_block
    size, piece, has_w = BY_NAME[value].itemsize, BY_NAME[value].vector, len(grad.rows) > 1
    settled = grad.settled if in_place and grad.settled else gradient
    # columns of a lane that are no vector are as far apart as lanes have a row; of a run of more than ``room`` rows it has one
    spread, far_vector = vector > unit, min(vector, unit)
    fold_run = run_folder_of(settled, value, vector, items_per_thread, True, in_place, spread)
    fold_far = run_folder_of(gradient, value, far_vector, items_per_thread, False)
    replace, store_rows = replacer_of(settled, value, vector, items_per_thread, spread), rows_storer_of(value, threads)
    keep, store_held = held_given_of(gradient, value, vector, unit, threads)
    store_far = far_storer_of(gradient, value, far_vector, items_per_thread)
    await_rows, given_size, wide_size = await_copies(0), 4 * vector, accumulator_type(value).bitwidth // 8
    look, has_segments = looker_of(threads), len(grad.segments) > 0
    warps, free_bits, half = threads // 32, 32 - (threads - 1).bit_length(), (1 << 16) - 1
    votes_size, reach, unsigned = rows_per_thread * warps, rows_per_thread * threads, jit.SCALARS["u" + index[1:]]
    together = 1 if spread else vector
    index_type, scan_steps, all_look = jit.SCALARS[index], (votes_size - 1).bit_length(), rows_per_thread > 1 or not spread

    @jit.device
    def level_of(items: Any) -> Any:
        """As many lanes share each of ``items`` parts as make up a block, or a warp at most: 2 ^ this."""
        return int32(min(max(int32(cuda.clz(int32(items - 1)) - free_bits), int32(0)), int32(5)))

    def fold_and_broadcast_runs(
        x: Ptr[value], w: Ptr[value], ids: Ptr[index], g: Ptr[value], y: Ptr[value], guard: Ptr[int32], output: Ptr[value],
        rows: int64, columns: int64, segments: int64, tile: int64, room: int64, most: int64, width: int64, reciprocal: int64, row_reciprocal: int64,
        lookers: int64, span: int64, correction: Scalar[wide],
    ) -> None:  # fmt: skip
        staged = cuda.shared.array(0, element)
        held = cuda.shared.array(0, wide)
        counts = cuda.shared.array(votes_size, int32)
        begins = cuda.shared.array(reach, uint16)
        run_of = cuda.shared.array(reach, uint16)
        given = cuda.local.array(given_size, wide)
        votes = cuda.local.array(rows_per_thread, int32)
        own_ids, ids_before = cuda.local.array(rows_per_thread, index_type), cuda.local.array(rows_per_thread, index_type)
        started = int64(start_number())
        if started < lookers:
            look(started, lookers, ids, rows, span, guard)
            return
        looked = begin_looked(guard)
        thread, lane, warp, pitch, wide_row = int32(cuda.threadIdx.x), int32(cuda.laneid), int32(cuda.threadIdx.x >> 5), int32(columns), int32(width)
        own_bit, up_to = int32(1 << lane), int32((2 << lane) - 1)
        far_row = pitch if spread else wide_row
        # the row at which the block is, the first one of later blocks, and where a run begins that has not ended, or -1
        position = (started - lookers) * tile
        stop, begun = min(position + tile, rows), int64(-1)
        w_at = int32(int32(int32(room) * pitch + 2 * piece - 1) & -piece)
        held_at, step = int32(int32(w_at * (2 if has_w else 1)) * size // wide_size), int32(int32(most) * pitch)
        while position < stop or begun >= 0:
            # heads, rows whose id differs from the one before, among the next rows and the one behind them, or behind all
            rest, inside = int32(min(rows - position, int64(reach))), int32(max(min(stop - position, int64(reach)), int64(0)))
            count = int32(min(int32(room), rest))
            last = int32(min(count, int32(rest - 1)))
            # where a thread has one row, and rows are wide, a warp that has none of these does not look
            last_vote = int32(count >> 5)
            for u in range(rows_per_thread):
                if all_look or warp <= last_vote:
                    row = position + int32(min(int32(thread + u * threads), last))
                    own_ids[u], ids_before[u] = ids[row], ids[max(row - 1, int64(0))]
            for u in range(rows_per_thread):
                if all_look or warp <= last_vote:
                    ahead = int32(thread + u * threads)
                    head = ahead <= count and (ahead == rest or own_ids[u] != ids_before[u] or position + ahead == 0)
                    votes[u], own_votes = int32(cuda.ballot_sync(-1, head)), int32(cuda.ballot_sync(-1, head and ahead < inside))
                    # opaque, or the compiler would make branches of this, of which each has the votes
                    if int32(opaque(lane)) == 0:
                        counts[uint32(warp + u * warps)] = int32(cuda.popc(votes[u]) + (cuda.popc(own_votes) << 16))
            # most blocks begin after a long run was found, and copy no rows then
            if cuda.syncthreads_or(int32(looked >= FOUND)):
                return
            # each warp adds up the counts, of which each lane has one
            own_count = counts[uint32(lane)] if lane <= last_vote else int32(0)
            found = own_count
            for k in range(scan_steps):
                below = cuda.shfl_up_sync(-1, found, 1 << k)
                found = int32(found + (below if lane >= int32(1 << k) else int32(0)))
            before = int32(found - own_count)
            found = cuda.shfl_sync(-1, found, votes_size - 1)
            runs, found = int32(found >> 16), int32(found & half)
            for u in range(rows_per_thread):
                if all_look or warp <= last_vote:
                    ahead, number = int32(thread + u * threads), cuda.shfl_sync(-1, before, int32(warp + u * warps))
                    number = int32((number & half) + cuda.popc(int32(votes[u] & up_to)) - 1)
                    if int32(votes[u] & own_bit) != 0:
                        begins[uint32(number)] = uint16(ahead)
                    if ahead < count:
                        run_of[uint32(ahead)] = uint16(number if unsigned(own_ids[u]) < unsigned(segments) else NO_RUN)
            cuda.syncthreads()
            low = int32(begins[0]) if found > 0 else int32(0)
            # nothing is stored, and no long run walked, before it is known that there is none
            if begun >= 0:
                looked = all_looked(looked, int32(lookers), guard)
                if cuda.syncthreads_or(int32(looked >= FOUND)):
                    return
            if begun >= 0 and found == 0:
                position = position + count
            elif begun >= 0:
                # the run that has just ended
                position = position + low
                segment, level, base = int64(ids[begun]), level_of(far_row), begun * columns
                segment, turn, length = segment if 0 <= segment < segments else int64(-1), int32(warp * 32), int32(position - begun)
                far_x, far_output, far_w = pointer_at(x, base), pointer_at(output, base), pointer_at(w, base if has_w else int64(0))
                while turn < int32(far_row << level):
                    item = int32(turn + lane)
                    share, taken = int32(item & int32((1 << level) - 1)), int32(item >> level)
                    active = taken < far_row
                    at, its_rows = (int32(taken * far_vector), length) if active else (int32(0), int32(0))
                    fold_far(far_x, far_w, at, at, 0, pitch, share, level, its_rows, begun, segment, g, y, segment * columns + at, correction, given)
                    left = int32(uint32(its_rows + int32(1 << level) - 1 - share) >> uint32(level))
                    at = int32(at + share * pitch)
                    store_far(far_x, far_w, far_output, at, int32(pitch << level), left, segment >= 0, given)
                    turn = int32(opaque(turn + threads))
                begun = int64(-1)
            elif runs == 0:
                position = position + count
            elif found == 1:
                begun, position = position + low, position + count
            else:
                runs = int32(min(min(runs, int32(found - 1)), int32(most)))
                end, first = int32(begins[uint32(runs)]), (position + low) * columns
                base = first & int64(-piece)
                shift, elements = int32(first - base), int32(int32(end - low) * pitch)
                begin_copies(x, base, int32(shift + elements), size, staged, 0, thread, threads)
                if has_w:
                    begin_copies(w, base, int32(shift + elements), size, staged, w_at, thread, threads)
                commit_copies()
                items, done = int32(runs * wide_row), int32(0)
                level = level_of(items)
                await_rows()
                looked = all_looked(looked, int32(lookers), guard)
                if cuda.syncthreads_or(int32(looked >= FOUND)):
                    return
                # of the last items, which are fewer, more lanes share each
                while int32(done + (int32(warp * 32) >> level)) < items:
                    share, taken = int32(lane & int32((1 << level) - 1)), int32(done + (thread >> level))
                    number = half_row_of(taken, reciprocal)
                    active = number < runs
                    number, column = (number if active else int32(0)), (int32(taken - number * wide_row) * together if active else int32(0))
                    # in the last lane of an odd row twice the same column
                    apart = wide_row if spread and int32(column + wide_row) < pitch else int32(0)
                    begin = int32(begins[uint32(number)])
                    length, segment = int32(begins[uint32(number + 1)] - begin), int64(-1)
                    if has_segments:
                        segment = int64(ids[position + begin])
                        segment = segment if 0 <= segment < segments else int64(-1)
                    elif run_of[uint32(begin)] != NO_RUN:
                        segment = int64(0)
                    at = int32(shift + int32(begin - low) * pitch + column)
                    fold_run(
                        staged, staged, at, int32(w_at + at), apart, pitch, share, level, length if active else int32(0), position + begin,
                        segment, g, y, segment * columns + column, correction, given,
                    )  # fmt: skip
                    if in_place:
                        own = int32(share * pitch)
                        left = int32(uint32((length if active else int32(0)) + int32(1 << level) - 1 - share) >> uint32(level))
                        replace(staged, int32(at + own), int32(w_at + at + own), apart, int32(pitch << level), left, segment >= 0, given)
                    elif active and share == 0 and segment >= 0:
                        keep(held, int32(held_at + number * pitch + column), step, given)
                    done = int32(opaque(done + int32(threads >> level)))
                    level = level_of(int32(items - done))
                cuda.syncthreads()
                if in_place:
                    store_rows(staged, shift, int32(shift + elements), output, base, thread)
                else:
                    store_held(
                        staged, shift, int32(w_at + shift), held, held_at, step, pointer_at(run_of, low), pitch, row_reciprocal, elements, output,
                        first, thread,
                    )  # fmt: skip
                position = position + end

    return fold_and_broadcast_runs
