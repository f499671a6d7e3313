/*
 * Collectives over shared memory. A collective is two gates: `arrived` (my source is ready) and
 * `left` (I read what I need of yours); between them a rank reads its peers. Along the split dim a
 * buffer is [outer][part][inner]: uneven parts are counts, not special cases. All-reduce reduces an
 * even chunk a rank, and then copies the others' chunks.
 */
#include "runtime/comm.h"

#include <math.h>
#include <string.h>

/*
 * The group of one collective: the mesh positions along an axis, in coordinate order; and the move
 * at hand.
 */
typedef struct {
    MotComm *comm;
    const MotInstr *ins;
    uint32_t member[MOT_MAX_RANKS], n, own;
    uint32_t src, dst;
    int dim, dim_out;
} Group;

static Group find_group(MotComm *comm, const MotInstr *ins)
{
    const MotMesh *mesh = &comm->program->mesh;
    Group group = {.comm = comm, .ins = ins, .n = mesh->axis[ins->axis].n};
    uint32_t stride = 1;
    for (uint32_t a = mesh->n_axes; a-- > ins->axis + 1;)
        stride *= mesh->axis[a].n;
    group.own = mot_mesh_coordinate(mesh, comm->position, ins->axis);
    for (uint32_t i = 0; i < group.n; i++)
        group.member[i] = comm->position - group.own * stride + i * stride;
    return group;
}

static void take_move(Group *g, uint32_t i)
{
    g->src = g->ins->bufs[i];
    g->dst = g->ins->bufs[g->ins->n_in + i];
    g->dim = g->ins->moves[i].dim;
    g->dim_out = g->ins->moves[i].dim_out;
}

static char *buffer_of(const Group *g, uint32_t i, uint32_t buf)
{
    uint32_t position = g->member[i];
    return g->comm->ranks[position].arena + mot_program_offset(g->comm->program,
                                                               &g->comm->bindings[position], buf,
                                                               g->comm->run.micro);
}

static const MotType *type_of(const Group *g, uint32_t i, uint32_t buf)
{
    return &g->comm->bindings[g->member[i]].types[buf];
}

/* Elements before, in and after a dim. */
typedef struct {
    int64_t outer, size, inner;
} Layout;

static Layout layout_of(const MotType *type, int dim)
{
    Layout l = {1, type->dims[dim], 1};
    for (int d = 0; d < dim; d++)
        l.outer *= type->dims[d];
    for (int d = dim + 1; d < type->rank; d++)
        l.inner *= type->dims[d];
    return l;
}

/* Copies `n` of the dim's entries between two buffers that agree outside the dim. */
static void copy_range(char *dst, Layout to, int64_t to_at, const char *src, Layout from,
                       int64_t from_at, int64_t n, int64_t bytes)
{
    size_t run = (size_t)(n * to.inner * bytes);
    for (int64_t o = 0; run && o < to.outer; o++)
        memcpy(dst + (o * to.size + to_at) * to.inner * bytes,
               src + (o * from.size + from_at) * from.inner * bytes, run);
}

/* The offset of member i's part along a dim that `buf` has split. */
static int64_t part_offset(const Group *g, uint32_t i, uint32_t buf, int dim)
{
    int64_t symbol = -g->comm->program->bufs.data[buf].type.dims[dim] - 1;
    return g->comm->bindings[g->member[i]].offset[symbol];
}

static void all_gather(const Group *g)
{
    uint32_t src = g->src, dst = g->dst;
    Layout to = layout_of(type_of(g, g->own, dst), g->dim);
    int64_t bytes = mot_dtype_bytes(type_of(g, g->own, dst)->dtype);
    for (uint32_t i = 0; i < g->n; i++) {
        Layout from = layout_of(type_of(g, i, src), g->dim);
        copy_range(buffer_of(g, g->own, dst), to, part_offset(g, i, src, g->dim),
                   buffer_of(g, i, src), from, 0, from.size, bytes);
    }
}

/*
 * Source and destination split one dim at different places: what of every peer's range lies in the
 * own one is copied.
 */
static void split_again(const Group *g)
{
    uint32_t src = g->src, dst = g->dst;
    int dim = g->dim;
    const MotType *own = type_of(g, g->own, dst);
    Layout to = layout_of(own, dim);
    int64_t begin = part_offset(g, g->own, dst, dim), end = begin + to.size;
    for (uint32_t i = 0; i < g->n; i++) {
        Layout from = layout_of(type_of(g, i, src), dim);
        int64_t their_begin = part_offset(g, i, src, dim), their_end = their_begin + from.size;
        int64_t first = begin > their_begin ? begin : their_begin,
                last = end < their_end ? end : their_end;
        if (first < last)
            copy_range(buffer_of(g, g->own, dst), to, first - begin, buffer_of(g, i, src), from,
                       first - their_begin, last - first, mot_dtype_bytes(own->dtype));
    }
}

/*
 * Source split along dim, destination along dim_out: of every peer's source the own range of
 * dim_out goes to the peer's range of dim.
 */
static void all_to_all(const Group *g)
{
    uint32_t src = g->src, dst = g->dst;
    const MotType *own = type_of(g, g->own, dst);
    int dim = g->dim, dim_out = g->dim_out;
    int64_t bytes = mot_dtype_bytes(own->dtype), at = part_offset(g, g->own, dst, dim_out);
    int first = dim < dim_out ? dim : dim_out, second = dim < dim_out ? dim_out : dim;
    for (uint32_t i = 0; i < g->n; i++) {
        const MotType *theirs = type_of(g, i, src);
        int64_t their_at = part_offset(g, i, src, dim);
        /* Walk the first of the two dims; copy ranges of the second. */
        Layout from1 = layout_of(theirs, first), to1 = layout_of(own, first);
        int64_t n1 = first == dim ? theirs->dims[dim] : own->dims[dim_out];
        int64_t n2 = second == dim ? theirs->dims[dim] : own->dims[dim_out];
        Layout from2 = layout_of(theirs, second), to2 = layout_of(own, second);
        from2.outer = to2.outer =
            from2.outer && from1.size ? from2.outer / (from1.outer * from1.size) : 0;
        for (int64_t o = 0; o < from1.outer; o++)
            for (int64_t k = 0; k < n1; k++) {
                int64_t from_row = o * from1.size + k + (first == dim ? 0 : at);
                int64_t to_row = o * to1.size + k + (first == dim ? their_at : 0);
                copy_range(buffer_of(g, g->own, dst) + to_row * to1.inner * bytes, to2,
                           second == dim ? their_at : 0,
                           buffer_of(g, i, src) + from_row * from1.inner * bytes, from2,
                           second == dim ? 0 : at, n2, bytes);
            }
    }
}

/* Element e of a buffer of any dtype. */
static double get_element(const char *data, MotDtype dtype, int64_t e)
{
    return mot_tensor_get(&(MotTensor){{.dtype = dtype}, (void *)(uintptr_t)data}, e);
}

/*
 * Of the dtypes that only the reference device computes in: none of them has more digits than a
 * double.
 */
static void reduce_any(char *dst, const char *const *src, uint32_t n_src, int64_t n, MotDtype dtype,
                       bool is_max)
{
    for (int64_t e = 0; e < n; e++) {
        double a = get_element(src[0], dtype, e);
        for (uint32_t i = 1; i < n_src; i++) {
            double b = get_element(src[i], dtype, e);
            a = !is_max ? a + b : isnan(a) || a > b ? a : b;
        }
        mot_tensor_set(&(MotTensor){{.dtype = dtype}, dst}, e, a);
    }
}

#define REDUCTION(name, T, combine)                                                                \
    static void name(char *dst, const char *const *src, uint32_t n_src, int64_t n)                 \
    {                                                                                              \
        for (int64_t e = 0; e < n; e++) {                                                          \
            T a = ((const T *)(const void *)src[0])[e];                                            \
            for (uint32_t i = 1; i < n_src; i++) {                                                 \
                T b = ((const T *)(const void *)src[i])[e];                                        \
                a = combine;                                                                       \
            }                                                                                      \
            ((T *)(void *)dst)[e] = a;                                                             \
        }                                                                                          \
    }
REDUCTION(add_f32, float, a + b)
REDUCTION(max_f32, float, a != a || a > b ? a : b)
REDUCTION(add_i64, int64_t, a + b)
REDUCTION(max_i64, int64_t, a > b ? a : b)
#undef REDUCTION

/* dst[e] = src[0][e] (+) src[1][e] (+) ..., in this order. */
static void reduce_run(char *dst, const char *const *src, uint32_t n_src, int64_t n, MotDtype dtype,
                       bool is_max)
{
    MOT_ASSERT(n_src > 0);
    if (dtype == MOT_F32)
        (is_max ? max_f32 : add_f32)(dst, src, n_src, n);
    else if (dtype == MOT_I64)
        (is_max ? max_i64 : add_i64)(dst, src, n_src, n);
    else
        reduce_any(dst, src, n_src, n, dtype, is_max);
}

static void reduce_scatter(const Group *g)
{
    uint32_t src = g->src, dst = g->dst;
    Layout from = layout_of(type_of(g, g->own, src), g->dim),
           to = layout_of(type_of(g, g->own, dst), g->dim);
    MotDtype dtype = type_of(g, g->own, dst)->dtype;
    int64_t at = part_offset(g, g->own, dst, g->dim), bytes = mot_dtype_bytes(dtype);
    const char *rows[MOT_MAX_RANKS];
    for (int64_t o = 0; o < from.outer; o++) {
        for (uint32_t i = 0; i < g->n; i++)
            rows[i] = buffer_of(g, i, src) + (o * from.size + at) * from.inner * bytes;
        reduce_run(buffer_of(g, g->own, dst) + o * to.size * to.inner * bytes, rows, g->n,
                   to.size * to.inner, dtype, g->ins->is_max);
    }
}

/* Member i's chunk of `n` elements: [chunk(i), chunk(i + 1)). */
static int64_t chunk(int64_t n, uint32_t i, uint32_t n_members)
{
    return n * i / n_members;
}

static void reduce_chunk(const Group *g, int64_t begin, int64_t end)
{
    uint32_t src = g->src, dst = g->dst;
    MotDtype dtype = type_of(g, g->own, dst)->dtype;
    int64_t bytes = mot_dtype_bytes(dtype);
    const char *rows[MOT_MAX_RANKS];
    for (uint32_t i = 0; i < g->n; i++)
        rows[i] = buffer_of(g, i, src) + begin * bytes;
    reduce_run(buffer_of(g, g->own, dst) + begin * bytes, rows, g->n, end - begin, dtype,
               g->ins->is_max);
}

/* Waits until all members have opened their gate `target` times. */
static MotStatus wait_all(const Group *g, bool is_arrival, uint32_t target)
{
    MotRankState *own = &g->comm->ranks[g->comm->position];
    for (uint32_t i = 0; i < g->n; i++) {
        MotRankState *peer = &g->comm->ranks[g->member[i]];
        MotGate *gate = is_arrival ? &peer->arrived[g->ins->axis] : &peer->left[g->ins->axis];
        atomic_store_explicit(&own->target, target, memory_order_relaxed);
        atomic_store_explicit(&own->awaited, gate, memory_order_relaxed);
        MOT_TRY(mot_gate_wait(g->comm->shared, gate, target));
    }
    atomic_store_explicit(&own->awaited, NULL, memory_order_relaxed);
    return MOT_OK;
}

/*
 * The collective begins when the last rank has come, and ends when the last is done: in the
 * devices' time.
 */
static void wait_for_latest(const Group *g, bool is_arrival)
{
    uint32_t axis = g->ins->axis;
    for (uint32_t i = 0; i < g->n; i++) {
        const MotRankState *peer = &g->comm->ranks[g->member[i]];
        mot_clock_wait(&g->comm->clock, is_arrival ? peer->arrived_ns[axis] : peer->left_ns[axis]);
    }
}

/* The gates of collective k stand at 2k + 1 (arrived) and 2k + 2 (a second phase). */
static MotStatus pass_gate(const Group *g, uint32_t phase)
{
    MotRankState *own = &g->comm->ranks[g->comm->position];
    mot_gate_open(&own->arrived[g->ins->axis]);
    return wait_all(g, true, 2 * g->comm->passed[g->ins->axis] + phase);
}

static MotStatus arrive(const Group *g, int64_t issued_ns)
{
    MotClock *clock = &g->comm->clock;
    mot_clock_wait(clock, issued_ns); /* or when the collective before it was done */
    g->comm->ranks[g->comm->position].arrived_ns[g->ins->axis] = clock->ns;
    MOT_TRY(pass_gate(g, 1));
    wait_for_latest(g, true);
    return MOT_OK;
}

static MotStatus leave(const Group *g)
{
    uint32_t axis = g->ins->axis;
    MotRankState *own = &g->comm->ranks[g->comm->position];
    own->left_ns[axis] = g->comm->clock.ns;
    mot_gate_open(&own->left[axis]);
    g->comm->passed[axis]++;
    MOT_TRY(wait_all(g, false, g->comm->passed[axis]));
    wait_for_latest(g, false);
    return MOT_OK;
}

/* Up to so many elements every rank reduces all, and nothing is copied afterwards. */
enum { SMALL_REDUCTION = 4096 };

static void reduce_own(const Group *g)
{
    int64_t n = mot_type_elements(type_of(g, g->own, g->dst));
    if (n <= SMALL_REDUCTION)
        reduce_chunk(g, 0, n);
    else
        reduce_chunk(g, chunk(n, g->own, g->n), chunk(n, g->own + 1, g->n));
}

static void copy_reduced(const Group *g)
{
    const MotType *type = type_of(g, g->own, g->dst);
    int64_t n = mot_type_elements(type), bytes = mot_dtype_bytes(type->dtype);
    for (uint32_t i = 0; n > SMALL_REDUCTION && i < g->n; i++) {
        int64_t begin = chunk(n, i, g->n), end = chunk(n, i + 1, g->n);
        if (i != g->own && end > begin)
            memcpy(buffer_of(g, g->own, g->dst) + begin * bytes,
                   buffer_of(g, i, g->dst) + begin * bytes, (size_t)((end - begin) * bytes));
    }
}

static void convert_split(const Group *g)
{
    (g->dim == g->dim_out ? split_again : all_to_all)(g);
}

/* How long the slowest emulated link of the group takes for `bytes`. */
static int64_t link_ns(const Group *g, int64_t bytes)
{
    const MotMesh *mesh = &g->comm->program->mesh;
    double seconds = 0;
    for (uint32_t i = 0; i < g->n; i++) {
        if (i == g->own)
            continue;
        MotLink link = mot_cluster_link(g->comm->cluster, mesh->devices[g->member[i]],
                                        mesh->devices[g->comm->position]);
        double s = link.latency + (double)bytes / link.bandwidth;
        if (link.is_emulated && s > seconds)
            seconds = s;
    }
    return (int64_t)(seconds * 1e9);
}

static void take_part(const Group *g)
{
    Layout to = layout_of(type_of(g, g->own, g->dst), g->dim);
    copy_range(buffer_of(g, g->own, g->dst), to, 0, buffer_of(g, g->own, g->src),
               layout_of(type_of(g, g->own, g->src), g->dim),
               part_offset(g, g->own, g->dst, g->dim), to.size,
               mot_dtype_bytes(type_of(g, g->own, g->dst)->dtype));
}

static void copy_whole(MotComm *comm, const MotInstr *ins)
{
    const MotBinding *b = &comm->bindings[comm->position];
    char *arena = comm->ranks[comm->position].arena;
    memcpy(arena + mot_program_offset(comm->program, b, ins->bufs[1], comm->run.micro),
           arena + mot_program_offset(comm->program, b, ins->bufs[0], comm->run.micro),
           (size_t)mot_type_bytes(&b->types[ins->bufs[1]]));
}

/*
 * What a rank does for each move once all sources are ready, and after all have done that (or
 * nothing).
 */
typedef struct {
    void (*first)(const Group *), (*second)(const Group *);
} Phases;

static const Phases phases[] = {
    [MOT_INS_ALL_REDUCE] = {reduce_own, copy_reduced},
    [MOT_INS_REDUCE_SCATTER] = {reduce_scatter, NULL},
    [MOT_INS_ALL_GATHER] = {all_gather, NULL},
    [MOT_INS_ALL_TO_ALL] = {convert_split, NULL},
    [MOT_INS_PART] = {take_part, NULL},
};

static void run_phase(Group *g, void (*phase)(const Group *))
{
    for (uint32_t i = 0; i < g->ins->n_in; i++) {
        take_move(g, i);
        phase(g);
    }
}

void mot_comm_exec_local(MotComm *comm, const MotInstr *ins)
{
    if (ins->kind == MOT_INS_COPY) {
        copy_whole(comm, ins);
        return;
    }
    Group g = find_group(comm, ins);
    run_phase(&g, phases[ins->kind].first);
}

MotStatus mot_comm_exec(MotComm *comm, const MotInstr *ins, int64_t issued_ns)
{
    Group g = find_group(comm, ins);
    const Phases *phase = &phases[ins->kind];
    MOT_TRY(arrive(&g, issued_ns));
    int64_t start = mot_clock_now(&comm->clock);
    mot_clock_begin(&comm->clock);
    run_phase(&g, phase->first);
    if (phase->second) {
        MOT_TRY(pass_gate(&g, 2));
        run_phase(&g, phase->second);
    } else {
        mot_gate_open(&comm->ranks[comm->position].arrived[ins->axis]);
    }
    int64_t bytes = mot_count_received(comm->program, ins, &comm->bindings[comm->position]);
    mot_clock_receive(&comm->clock, mot_clock_took(&comm->clock, &(MotCount){0}),
                      link_ns(&g, bytes));
    int64_t end = mot_clock_now(&comm->clock);
    if (end > comm->needed_ns)
        comm->busy_ns += end - (start > comm->needed_ns ? start : comm->needed_ns);
    return leave(&g);
}

void mot_comm_copy_part(const MotProgram *program, const MotBinding *binding, uint32_t buf,
                        MotWhole whole, char *part, bool to_whole)
{
    const MotBuf *info = &program->bufs.data[buf];
    const MotType *local = &binding->types[buf];
    int64_t bytes = mot_dtype_bytes(local->dtype), n = mot_type_elements(local), at = 0, run = 1,
            stride[MOT_MAX_RANK], index[MOT_MAX_RANK] = {0};
    for (int64_t d = local->rank, row_major = 1; d-- > 0; row_major *= info->global.dims[d]) {
        stride[d] = whole.stride ? whole.stride[d] : row_major;
        at += stride[d] * mot_program_part_offset(program, binding, buf, (int)d);
    }
    /* The last dims whose elements follow each other on both sides are copied as one. */
    int outer = local->rank;
    while (outer > 0 && stride[outer - 1] == run)
        run *= local->dims[--outer];
    for (int64_t e = 0; e < n; e += run) {
        char *w = whole.data + at * bytes, *p = part + e * bytes;
        memcpy(to_whole ? w : p, to_whole ? p : w, (size_t)(run * bytes));
        for (int d = outer; d-- > 0;) {
            at += stride[d];
            if (++index[d] < local->dims[d])
                break;
            at -= stride[d] * index[d];
            index[d] = 0;
        }
    }
}
