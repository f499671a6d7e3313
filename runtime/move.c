/* Moving persistent buffers from one binding to another. */
#include "runtime/move.h"

#include "runtime/comm.h"

#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* Whether the buffer outlives a step. */
static bool is_kept(const MotBuf *buf)
{
    return buf->kind != MOT_BUF_SCRATCH && buf->kind != MOT_BUF_STEP &&
           buf->kind != MOT_BUF_LOCAL && !buf->alias;
}

static char *place_of(const MotMover *m, const MotBinding *bindings, uint32_t rank, uint32_t buf,
                      uint32_t micro)
{
    return m->ranks[rank].arena + mot_program_offset(m->program, &bindings[rank], buf, micro);
}

static int64_t offset_of(const MotMover *m, const MotBinding *binding, uint32_t buf, int dim)
{
    return mot_program_part_offset(m->program, binding, buf, dim);
}

/* Whether two parts of a buffer hold the same of every dim but the outermost. */
static bool have_equal_rows(const MotMover *m, uint32_t buf, const MotBinding *a,
                            const MotBinding *b)
{
    for (int d = 1; d < a->types[buf].rank; d++)
        if (a->types[buf].dims[d] != b->types[buf].dims[d] ||
            offset_of(m, a, buf, d) != offset_of(m, b, buf, d))
            return false;
    return true;
}

static bool keeps_rows(const MotMover *m, uint32_t buf)
{
    for (uint32_t r = 0; r < m->n_ranks; r++)
        if (!have_equal_rows(m, buf, &m->from[r], &m->to[r]))
            return false;
    return true;
}

/* Rows [begin, end) of the whole tensor. */
typedef struct {
    int64_t begin, end;
} Rows;

static Rows rows_of(const MotMover *m, const MotBinding *binding, uint32_t buf)
{
    if (binding->types[buf].rank == 0)
        return (Rows){0, 1};
    int64_t begin = offset_of(m, binding, buf, 0);
    return (Rows){begin, begin + binding->types[buf].dims[0]};
}

static int64_t row_bytes_of(const MotType *type)
{
    int64_t bytes = mot_dtype_bytes(type->dtype);
    for (int d = 1; d < type->rank; d++)
        bytes *= type->dims[d];
    return bytes;
}

/* Rows that rank r gets and did not have, copied from who had them. */
static int64_t fetch_rows(const MotMover *m, uint32_t buf, uint32_t micro, uint32_t r, Rows rows)
{
    int64_t row_bytes = row_bytes_of(&m->to[r].types[buf]), moved = 0;
    char *to = place_of(m, m->to, r, buf, micro) - rows_of(m, &m->to[r], buf).begin * row_bytes;
    for (uint32_t q = 0; q < m->n_ranks && rows.begin < rows.end; q++) {
        Rows theirs = rows_of(m, &m->from[q], buf);
        if (theirs.begin > rows.begin || theirs.end <= rows.begin ||
            !have_equal_rows(m, buf, &m->from[q], &m->to[r]))
            continue;
        int64_t end = theirs.end < rows.end ? theirs.end : rows.end;
        const char *from =
            place_of(m, m->from, q, buf, micro) + (rows.begin - theirs.begin) * row_bytes;
        memcpy(to + rows.begin * row_bytes, from, (size_t)((end - rows.begin) * row_bytes));
        moved += (end - rows.begin) * row_bytes;
        rows.begin = end;
        q = UINT32_MAX; /* whoever has the next row may stand before */
    }
    MOT_ASSERT(rows.begin >= rows.end);
    return moved;
}

static int64_t move_rows(const MotMover *m, uint32_t buf, uint32_t micro)
{
    int64_t moved = 0;
    for (uint32_t r = 0; r < m->n_ranks; r++) {
        Rows had = rows_of(m, &m->from[r], buf), gets = rows_of(m, &m->to[r], buf);
        Rows below = {gets.begin, had.begin < gets.end ? had.begin : gets.end};
        Rows above = {had.end > gets.begin ? had.end : gets.begin, gets.end};
        if (had.begin == had.end) {
            below = gets;
            above.begin = above.end;
        }
        moved += fetch_rows(m, buf, micro, r, below) + fetch_rows(m, buf, micro, r, above);
    }
    return moved;
}

static int64_t move_whole(const MotMover *m, uint32_t buf, uint32_t micro, char *room)
{
    MotWhole whole = {room, NULL};
    for (uint32_t r = 0; r < m->n_ranks; r++)
        mot_comm_copy_part(m->program, &m->from[r], buf, whole, place_of(m, m->from, r, buf, micro),
                           true);
    for (uint32_t r = 0; r < m->n_ranks; r++)
        mot_comm_copy_part(m->program, &m->to[r], buf, whole, place_of(m, m->to, r, buf, micro),
                           false);
    return mot_type_bytes(&m->program->bufs.data[buf].global);
}

void mot_mover_release(char *begin, char *end)
{
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    char *first = begin + (page - (uintptr_t)begin % page) % page;
    char *last = end - (uintptr_t)end % page;
    if (first < last)
        madvise(first, (size_t)(last - first), MADV_REMOVE);
}

static void release_old(const MotMover *m, uint32_t buf, uint32_t micro)
{
    for (uint32_t r = 0; r < m->n_ranks; r++) {
        char *old = place_of(m, m->from, r, buf, micro), *new = place_of(m, m->to, r, buf, micro);
        char *old_end = old + mot_type_bytes(&m->from[r].types[buf]);
        char *new_end = new + mot_type_bytes(&m->to[r].types[buf]);
        mot_mover_release(old, old_end < new ? old_end : new);
        mot_mover_release(old > new_end ? old : new_end, old_end);
    }
}

size_t mot_mover_room(const MotMover *m)
{
    int64_t most = 0;
    for (uint32_t i = 0; i < m->program->bufs.n; i++) {
        int64_t bytes = mot_type_bytes(&m->program->bufs.data[i].global);
        if (is_kept(&m->program->bufs.data[i]) && bytes > most && !keeps_rows(m, i))
            most = bytes;
    }
    return (size_t)most;
}

int64_t mot_mover_run(const MotMover *m, char *room)
{
    int64_t moved = 0;
    for (uint32_t i = 0; i < m->program->bufs.n; i++) {
        if (!is_kept(&m->program->bufs.data[i]))
            continue;
        bool is_straight = keeps_rows(m, i);
        for (uint32_t micro = 0; micro < m->program->bufs.data[i].copies; micro++) {
            moved += is_straight ? move_rows(m, i, micro) : move_whole(m, i, micro, room);
            release_old(m, i, micro);
        }
    }
    return moved;
}
