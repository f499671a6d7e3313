/*
 * A Program written by hand, an instruction a line: what lowering does for a plan, without a plan.
 * First what it takes to write one; then one, as the example of what a Program is: a pair of
 * attention and MLP, forward, backward and update.
 *
 * A dim has a letter, which says in a type what a letter of contract's spec says of a factor: "chd"
 * is a tensor [C, H, D], of which a rank has its part wherever the letter is one of a split dim. A
 * launch's kernel is given as text (docs/ir.md): operands are %a, %b, .., the result is %y, whose
 * type follows. Whoever reads on one stream what the other one wrote says so with `await`.
 */
#ifndef MOTLEY_TESTS_PROP_BY_HAND_H
#define MOTLEY_TESTS_PROP_BY_HAND_H

#include "ir/builder.h"
#include "ir/graph_text.h"
#include "ir/program.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

static inline void require(MotCtx *ctx, MotStatus status)
{
    if (status != MOT_OK)
        fail_msg("%s", mot_text_get(&ctx->error));
}

/*
 * A Program that is being written. What stands here besides it is taken over by the instructions
 * that follow.
 */
typedef struct Hand {
    MotCtx *ctx;
    MotProgram *program;
    uint32_t stage;
    uint32_t copies;    /* of scratch buffers: one a micro-batch in flight */
    int64_t dim[128];   /* by letter: a size, or -(1 + number) of a dim of the program */
    MotSection section; /* where they stand */
    const char *origin; /* the node that they belong to */
    MotWhen when;
    uint32_t cut; /* of these ranks; 0: of all */
    enum MotWho who;
    uint32_t event; /* the next one waits for it; 0: for none */
} Hand;

/* A stage on devices [first, first + n), which share its split dims as `share` says. */
static inline Hand make_hand(MotCtx *ctx, uint32_t stage, uint32_t first, uint32_t n,
                             const int64_t *share, uint32_t n_micro)
{
    MotArena *arena = &ctx->arena;
    Hand h = {.ctx = ctx, .program = mot_arena_new(arena, MotProgram), .stage = stage, .copies = 1};
    MotMesh mesh = {.n_axes = 1, .n_devices = n, .devices = mot_arena_array(arena, uint32_t, n)};
    mesh.axis[0] = (MotMeshAxis){"x", n, mot_arena_copy(arena, share, n * sizeof *share)};
    for (uint32_t i = 0; i < n; i++)
        mesh.devices[i] = first + i;
    *h.program = (MotProgram){.ctx = ctx, .name = "by_hand", .mesh = mesh, .n_micro = n_micro};
    h.section = MOT_SECTION_STEP;
    return h;
}

/* ---- Dims, buffers ---- */

/* A dim that the mesh's axis splits one by one, or that follows from cut `dim.cut`. */
static inline void add_dim(Hand *h, char letter, MotDim dim)
{
    dim.name = mot_arena_printf(&h->ctx->arena, "%c", letter);
    dim.granule = 1;
    mot_vec_push(&h->ctx->arena, &h->program->dims, dim);
    h->dim[(int)letter] = -(int64_t)h->program->dims.n;
}

static inline MotType type_of(const Hand *h, MotDtype dtype, const char *letters)
{
    MotType type = {.dtype = dtype};
    for (; *letters; letters++)
        type.dims[type.rank++] = h->dim[(int)*letters];
    return type;
}

/* The whole value's type and sharding follow from what a rank has of it. */
static inline uint32_t add_buf(Hand *h, MotBufKind kind, const char *name, MotType type)
{
    MotBuf buf = {.kind = kind,
                  .name = name,
                  .type = type,
                  .global = type,
                  .sharding = mot_replicated,
                  .copies = kind == MOT_BUF_SCRATCH ? h->copies : 1};
    if (kind == MOT_BUF_INPUT)
        buf.copies = h->program->n_micro;
    for (int d = 0; d < type.rank; d++)
        if (type.dims[d] < 0) {
            buf.global.dims[d] = h->program->dims.data[-type.dims[d] - 1].size;
            buf.sharding.axis[0] = (int8_t)d;
            buf.sharding.units[0] = buf.global.dims[d];
        }
    mot_vec_push(&h->ctx->arena, &h->program->bufs, buf);
    return h->program->bufs.n - 1;
}

static inline uint32_t add_constant(Hand *h, MotTensor data)
{
    MotBuilder b = mot_builder_make(mot_graph_make(h->ctx, "constant"));
    uint32_t buf = add_buf(h, MOT_BUF_CONSTANT, NULL, data.type);
    h->program->bufs.data[buf].source = mot_graph_def(b.graph, mot_constant(&b, data));
    return buf;
}

/* ---- Instructions ---- */

static inline MotInstr *append(Hand *h, MotInstr ins, const uint32_t *bufs)
{
    MotArena *arena = &h->ctx->arena;
    ins.bufs = mot_arena_copy(arena, bufs, ins.n_bufs * sizeof *bufs);
    ins.origin = h->origin;
    ins.when = h->when;
    ins.cut = h->cut;
    ins.who = h->who;
    if (h->event)
        mot_vec_push(arena, &ins.wait, h->event);
    h->event = 0;
    mot_vec_push(arena, &h->program->section[h->section], ins);
    return &h->program->section[h->section].data[h->program->section[h->section].n - 1];
}

/* The next instruction begins when the newest one that writes the buffer is done. */
static inline void await(Hand *h, uint32_t buf)
{
    for (uint32_t i = h->program->section[h->section].n; i-- > 0;) {
        MotInstr *ins = &h->program->section[h->section].data[i];
        for (uint32_t k = ins->n_in; k < ins->n_bufs; k++)
            if (ins->bufs[k] == buf) {
                if (!ins->signal)
                    ins->signal = ++h->program->n_events;
                h->event = ins->signal;
                return;
            }
    }
}

/* As records have it: f32[3x@hx2]. */
static inline const char *type_text(const Hand *h, const MotType *type)
{
    MotText text;
    mot_text_init(&text, &h->ctx->arena);
    mot_text_printf(&text, "%s", mot_dtype_name(type->dtype));
    for (int d = 0; d < type->rank; d++) {
        mot_text_printf(&text, d ? "x" : "[");
        if (type->dims[d] < 0)
            mot_text_printf(&text, "@%s", h->program->dims.data[-type->dims[d] - 1].name);
        else
            mot_text_printf(&text, "%lld", (long long)type->dims[d]);
    }
    mot_text_printf(&text, type->rank ? "]" : "");
    return mot_text_get(&text);
}

/* The kernel of this text; equal texts are one. */
static inline uint32_t find_kernel(Hand *h, const char *text)
{
    MotKernel kernel = {.name = mot_arena_printf(&h->ctx->arena, "k_%016llx",
                                                 (unsigned long long)mot_hash(text, strlen(text)))};
    for (uint32_t i = 0; i < h->program->kernels.n; i++)
        if (strcmp(h->program->kernels.data[i].name, kernel.name) == 0)
            return i;
    require(h->ctx, mot_graph_parse(h->ctx, "kernel", text, &kernel.graph));
    mot_vec_push(&h->ctx->arena, &h->program->kernels, kernel);
    return h->program->kernels.n - 1;
}

static inline const char *kernel_text(const Hand *h, const char *body, const uint32_t *in,
                                      uint32_t n_in)
{
    MotText text;
    mot_text_init(&text, &h->ctx->arena);
    mot_text_printf(&text, "graph @kernel {symbols=[");
    for (uint32_t i = 0; i < h->program->dims.n; i++)
        mot_text_printf(&text, "%s@%s", i ? ", " : "", h->program->dims.data[i].name);
    mot_text_printf(&text, "]} {\n");
    for (uint32_t i = 0; i < n_in; i++)
        mot_text_printf(&text, "%%%c = input {name=\"%u\"} : %s\n", (char)('a' + i), i,
                        type_text(h, &h->program->bufs.data[in[i]].type));
    mot_text_printf(&text, "%s\noutput %%y\n}\n", body);
    return mot_text_get(&text);
}

/* Into a new buffer, or into this one. Gives the buffer. */
static inline uint32_t launch(Hand *h, uint32_t into, const char *body, const uint32_t *in,
                              uint32_t n_in)
{
    uint32_t kernel = find_kernel(h, kernel_text(h, body, in, n_in)), bufs[8];
    const MotGraph *graph = h->program->kernels.data[kernel].graph;
    MotType type = *mot_graph_type(graph, mot_graph_signature(graph).out[0]);
    memcpy(bufs, in, n_in * sizeof *in);
    bufs[n_in] = into == MOT_NO_BUF ? add_buf(h, MOT_BUF_SCRATCH, NULL, type) : into;
    append(h, (MotInstr){.kernel = kernel, .n_in = n_in, .n_bufs = n_in + 1}, bufs);
    return bufs[n_in];
}
#define LAUNCH_INTO(h, into, body, ...)                                                            \
    launch(h, into, body, (const uint32_t[]){__VA_ARGS__},                                         \
           sizeof((const uint32_t[]){__VA_ARGS__}) / sizeof(uint32_t))
#define LAUNCH(h, body, ...) LAUNCH_INTO(h, MOT_NO_BUF, body, __VA_ARGS__)

/* The most frequent kernel. */
static inline uint32_t contract(Hand *h, const char *spec, uint32_t a, uint32_t b)
{
    const char *body =
        mot_arena_printf(&h->ctx->arena, "%%y = contract %%a %%b {spec=\"%s\"}", spec);
    return LAUNCH(h, body, a, b);
}

/*
 * A collective on what the compute stream made: dim `dim` is `letter` afterwards. Gives the buffer,
 * for which its reader has to wait.
 */
static inline uint32_t exchange(Hand *h, MotInstrKind kind, uint32_t from, int dim, char letter)
{
    MotType type = h->program->bufs.data[from].type;
    MotMove move = {.dim = dim, .dim_out = dim};
    if (letter)
        type.dims[dim] = h->dim[(int)letter];
    uint32_t to = add_buf(h, MOT_BUF_SCRATCH, NULL, type);
    await(h, from);
    MotInstr *ins =
        append(h, (MotInstr){.kind = kind, .stream = MOT_STREAM_COMM, .n_in = 1, .n_bufs = 2},
               (uint32_t[]){from, to});
    ins->moves = mot_arena_copy(&h->ctx->arena, &move, sizeof move);
    return to;
}

/* The sum over the micro-batches of a step. */
static inline uint32_t accumulate(Hand *h, uint32_t x)
{
    if (!mot_section_is_repeated(h->section))
        return x;
    uint32_t sum = add_buf(h, MOT_BUF_STEP, NULL, h->program->bufs.data[x].type);
    h->when = MOT_WHEN_FIRST;
    LAUNCH_INTO(h, sum, "%y = accumulate %a", x);
    h->when = MOT_WHEN_LATER;
    LAUNCH_INTO(h, sum, "%y = add %a %b", sum, x);
    h->when = MOT_WHEN_ALL;
    return sum;
}

/*
 * The value goes to the other stage, which has the same dims, over channel `number`. Gives the
 * buffer there.
 */
static inline uint32_t pass_on(Hand *from, uint32_t buf, Hand *to, MotChannel *channels,
                               uint32_t number)
{
    MotBuf *sent = &from->program->bufs.data[buf];
    uint32_t there = add_buf(to, MOT_BUF_SCRATCH, NULL, sent->type);
    sent->is_sent = true;
    sent->copies = sent->copies < 2 ? 2 : sent->copies; /* one on its way while the next is made */
    append(from, (MotInstr){.kind = MOT_INS_SEND, .channel = number, .n_in = 1, .n_bufs = 1}, &buf);
    append(to, (MotInstr){.kind = MOT_INS_RECV, .channel = number, .n_bufs = 1}, &there);
    channels[number] = (MotChannel){from->stage, to->stage, buf, there};
    return there;
}

static inline void run_in_order(Hand *h, const MotRun *order, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        mot_vec_push(&h->ctx->arena, &h->program->order, order[i]);
}

/* ---- The pair: its dims and buffers ---- */

/* Tokens, channels, heads, head size, hidden units: no two alike. */
enum { T = 5, C = 3, H = 4, D = 2, F = 8 };
enum { WQ, WK, WV, WO, W1, W2, N_WEIGHTS };

static const struct {
    const char *name, *momentum, *dims;
} weights[N_WEIGHTS] = {{"wq", "wq.m", "chd"}, {"wk", "wk.m", "chd"}, {"wv", "wv.m", "chd"},
                        {"wo", "wo.m", "hdc"}, {"w1", "w1.m", "fc"},  {"w2", "w2.m", "cf"}};

/* Buffers. What a rank has of tokens are its own ones (o), but for what ends with `_all`. */
typedef struct {
    uint32_t w[N_WEIGHTS], m[N_WEIGHTS], dw[N_WEIGHTS]; /* weights, momenta, gradients */
    uint32_t x, target, rate;                           /* [o, C], [o, C], [] */
    uint32_t mask;                                      /* [T, T]: 1 where a token reads another */
    uint32_t x_all, q, k, v;                            /* [T, C], [T, H, D] */
    uint32_t s, y;                          /* [H, T, T], [T, H, D]: scores, what is read by them */
    uint32_t a, a_all, r, z;                /* [o, C], [T, C], [T, F], [o, C] */
    uint32_t loss, dz, da;                  /* [], [o, C], [o, C] */
    uint32_t list, place, lent, lent_place; /* columns of w2: MotCut's */
    uint32_t w2_helped, r_helped;           /* of lent columns, what the helper has */
} Block;

/* What every stage has. */
static inline void add_common(Hand *h, Block *b)
{
    h->dim['t'] = T;
    h->dim['c'] = C;
    h->dim['d'] = D;
    add_dim(h, 'o', (MotDim){.size = T});
    add_dim(h, 'h', (MotDim){.size = H});
    add_dim(h, 'f', (MotDim){.size = F});
    b->rate = add_buf(h, MOT_BUF_SCALAR, "rate", mot_type_scalar(MOT_F32));
}

static inline void add_weights(Hand *h, Block *b, int first, int n)
{
    for (int i = first; i < first + n; i++) {
        MotType type = type_of(h, MOT_F32, weights[i].dims);
        b->w[i] = add_buf(h, MOT_BUF_PARAM, weights[i].name, type);
        b->m[i] = add_buf(h, MOT_BUF_PARAM, weights[i].momentum, type);
    }
}

static inline void add_attention_sources(Hand *h, Block *b)
{
    float *mask = mot_arena_array(&h->ctx->arena, float, T *T); /* a token reads those before it */
    for (int t = 0; t < T; t++)
        for (int u = 0; u <= t; u++)
            mask[t * T + u] = 1;
    b->mask = add_constant(h, (MotTensor){type_of(h, MOT_F32, "tt"), mask});
    b->x = add_buf(h, MOT_BUF_INPUT, "x", type_of(h, MOT_F32, "oc"));
    add_weights(h, b, WQ, 4);
}

static inline void add_mlp_sources(Hand *h, Block *b)
{
    b->target = add_buf(h, MOT_BUF_INPUT, "target", type_of(h, MOT_F32, "oc"));
    add_weights(h, b, W1, 2);
}

/*
 * Columns of w2, which are hidden units, may be cut and lent. How many the host says between two
 * steps: dims k(ept), l(ent) and (hel)p(ed), 0 where nothing is.
 */
static inline void add_cut(Hand *h, Block *b)
{
    static const struct {
        char letter;
        enum MotCutDim what;
    } dims[] = {{'k', MOT_DIM_KEPT}, {'l', MOT_DIM_LENT}, {'p', MOT_DIM_HELPED}};
    MotProgram *p = h->program;
    for (int i = 0; i < 3; i++)
        add_dim(h, dims[i].letter, (MotDim){.size = F, .cut = 1, .what = dims[i].what});
    MotCut cut = {.param = b->w[W2],
                  .param_dim = 1,
                  .is_lendable = true,
                  .dim = (uint32_t)(-h->dim['k'] - 1),
                  .dim_lent = (uint32_t)(-h->dim['l'] - 1),
                  .dim_helped = (uint32_t)(-h->dim['p'] - 1),
                  .n_kept = mot_arena_array(&h->ctx->arena, int64_t, p->mesh.n_devices),
                  .n_helped = mot_arena_array(&h->ctx->arena, int64_t, p->mesh.n_devices)};
    const struct {
        uint32_t *buf;
        const char *letter;
    } lists[] = {{&cut.list, "k"},        {&cut.lent, "l"}, {&cut.helped, "p"},
                 {&cut.place, "f"},       {&cut.held, "f"}, {&cut.lent_place, "f"},
                 {&cut.helped_place, "f"}};
    for (int i = 0; i < 7; i++)
        *lists[i].buf = add_buf(h, MOT_BUF_LOCAL, NULL, type_of(h, MOT_I64, lists[i].letter));
    p->lender = mot_arena_array(&h->ctx->arena, int64_t, p->mesh.n_devices);
    mot_vec_push(&h->ctx->arena, &p->cuts, cut);
    b->list = cut.list;
    b->place = cut.place;
    b->lent = cut.lent;
    b->lent_place = cut.lent_place;
}

/* ---- The pair: its instructions ---- */

/* Those that follow are for these ranks of the layer that may be cut, if the Program has one. */
static inline void only(Hand *h, enum MotWho who)
{
    h->cut = h->program->cuts.n;
    h->who = who;
}

static inline void everybody(Hand *h)
{
    h->cut = 0;
}

/* Own heads of all tokens; of what they give together, the own tokens. */
static inline void attention_forward(Hand *h, Block *b)
{
    h->origin = "/attention";
    b->x_all = exchange(h, MOT_INS_ALL_GATHER, b->x, 0, 't');
    await(h, b->x_all);
    b->q = contract(h, "tc,chd->thd", b->x_all, b->w[WQ]);
    b->k = contract(h, "tc,chd->thd", b->x_all, b->w[WK]);
    b->v = contract(h, "tc,chd->thd", b->x_all, b->w[WV]);
    uint32_t scores = contract(h, "thd,uhd->htu", b->q, b->k);
    b->s = LAUNCH(h, "%y = mul %a %b", scores, b->mask);
    b->y = contract(h, "htu,uhd->thd", b->s, b->v);
    uint32_t partial = contract(h, "thd,hdc->tc", b->y, b->w[WO]);
    uint32_t sum = exchange(h, MOT_INS_REDUCE_SCATTER, partial, 0, 'o');
    await(h, sum);
    b->a = LAUNCH(h, "%y = add %a %b", b->x, sum);
}

/* Lent columns go to the helper; what it makes of them is added to what it makes of its own. */
static inline void lend_forward(Hand *h, Block *b, uint32_t partial)
{
    only(h, MOT_WHO_LENDS);
    uint32_t w2_lent = LAUNCH(h, "%y = gather %a %b {axis=1}", b->w[W2], b->lent);
    uint32_t r_lent = LAUNCH(h, "%y = gather %a %b {axis=1}", b->r, b->lent);
    only(h, MOT_WHO_IF_LENT);
    b->w2_helped = exchange(h, MOT_INS_ALL_TO_ALL, w2_lent, 1, 'p');
    b->r_helped = exchange(h, MOT_INS_ALL_TO_ALL, r_lent, 1, 'p');
    only(h, MOT_WHO_HELPS);
    await(h, b->r_helped);
    uint32_t more = contract(h, "tf,cf->tc", b->r_helped, b->w2_helped);
    LAUNCH_INTO(h, partial, "%y = add %a %b", partial, more);
}

static inline void mlp_forward(Hand *h, Block *b)
{
    h->origin = "/mlp";
    b->a_all = exchange(h, MOT_INS_ALL_GATHER, b->a, 0, 't');
    await(h, b->a_all);
    uint32_t hidden = contract(h, "tc,fc->tf", b->a_all, b->w[W1]);
    b->r = LAUNCH(h, "%y = relu %a", hidden);
    only(h, MOT_WHO_WHOLE);
    uint32_t partial = contract(h, "tf,cf->tc", b->r, b->w[W2]);
    if (h->program->cuts.n) {
        only(h, MOT_WHO_CUTS);
        LAUNCH_INTO(h, partial, "%y = contract %a %b %c {spec=\"tf,cf->tc\", cut=\"f\"}", b->r,
                    b->w[W2], b->list);
        lend_forward(h, b, partial);
    }
    everybody(h);
    uint32_t sum = exchange(h, MOT_INS_REDUCE_SCATTER, partial, 0, 'o');
    await(h, sum);
    b->z = LAUNCH(h, "%y = add %a %b", b->a, sum);
}

static inline void loss(Hand *h, Block *b)
{
    h->origin = "/loss";
    uint32_t own = LAUNCH(h,
                          "%e = sub %a %b\n"
                          "%d = abs %e\n"
                          "%y = reduce_sum %d {axes=[0, 1]}",
                          b->z, b->target);
    b->loss = accumulate(h, own);
    b->dz = LAUNCH(h,
                   "%e = sub %a %b\n"
                   "%y = sign %e",
                   b->z, b->target);
}

/*
 * Columns %a take the places in the result that %b says; `otherwise` says what stands where that is
 * -1.
 */
#define SPREAD(otherwise)                                                                          \
    "%zero = constant {data=0} : i64\n"                                                            \
    "%is = le %zero %b\n"                                                                          \
    "%at = max %zero %b\n"                                                                         \
    "%x = gather %a %at {axis=1}\n" otherwise

/* A gradient of w2's product, [.., F]: of dz and `other`, whose columns may be cut or lent. */
static inline uint32_t product_gradient(Hand *h, const Block *b, const char *spec, uint32_t dz_all,
                                        uint32_t other, uint32_t other_helped)
{
    only(h, MOT_WHO_WHOLE);
    uint32_t gradient = contract(h, spec, dz_all, other);
    if (h->program->cuts.n == 0)
        return gradient;
    only(h, MOT_WHO_CUTS);
    uint32_t kept = LAUNCH(h, "%y = gather %a %b {axis=1}", other, b->list);
    uint32_t columns = contract(h, spec, dz_all, kept);
    LAUNCH_INTO(h, gradient,
                SPREAD("%none = constant {data=0.0} : f32\n"
                       "%y = select %is %x %none"),
                columns, b->place);
    only(h, MOT_WHO_HELPS);
    uint32_t made = contract(h, spec, dz_all, other_helped);
    only(h, MOT_WHO_IF_LENT);
    uint32_t back = exchange(h, MOT_INS_ALL_TO_ALL, made, 1, 'l');
    only(h, MOT_WHO_LENDS);
    await(h, back);
    LAUNCH_INTO(h, gradient, SPREAD("%y = select %is %x %c"), back, b->lent_place, gradient);
    everybody(h);
    return gradient;
}

static inline void mlp_backward(Hand *h, Block *b)
{
    h->origin = "/mlp";
    uint32_t dz_all = exchange(h, MOT_INS_ALL_GATHER, b->dz, 0, 't');
    await(h, dz_all);
    uint32_t dr = product_gradient(h, b, "tc,cf->tf", dz_all, b->w[W2], b->w2_helped);
    b->dw[W2] = accumulate(h, product_gradient(h, b, "tc,tf->cf", dz_all, b->r, b->r_helped));
    uint32_t dhidden = LAUNCH(h,
                              "%zero = constant {data=0.0} : f32\n"
                              "%on = lt %zero %a\n"
                              "%y = select %on %b %zero",
                              b->r, dr);
    uint32_t partial = contract(h, "tf,fc->tc", dhidden, b->w[W1]);
    uint32_t sum = exchange(h, MOT_INS_REDUCE_SCATTER, partial, 0, 'o'); /* beside what follows */
    b->dw[W1] = accumulate(h, contract(h, "tf,tc->fc", dhidden, b->a_all));
    await(h, sum);
    b->da = LAUNCH(h, "%y = add %a %b", b->dz, sum);
}

static inline void attention_backward(Hand *h, Block *b)
{
    h->origin = "/attention";
    uint32_t da_all = exchange(h, MOT_INS_ALL_GATHER, b->da, 0, 't');
    await(h, da_all);
    uint32_t dy = contract(h, "tc,hdc->thd", da_all, b->w[WO]);
    b->dw[WO] = accumulate(h, contract(h, "thd,tc->hdc", b->y, da_all));
    uint32_t dv = contract(h, "htu,thd->uhd", b->s, dy);
    uint32_t dscores = contract(h, "thd,uhd->htu", dy, b->v);
    uint32_t ds = LAUNCH(h, "%y = mul %a %b", dscores, b->mask);
    uint32_t dq = contract(h, "htu,uhd->thd", ds, b->k);
    uint32_t dk = contract(h, "htu,thd->uhd", ds, b->q);
    b->dw[WQ] = accumulate(h, contract(h, "tc,thd->chd", b->x_all, dq));
    b->dw[WK] = accumulate(h, contract(h, "tc,thd->chd", b->x_all, dk));
    b->dw[WV] = accumulate(h, contract(h, "tc,thd->chd", b->x_all, dv));
}

/*
 * All weights in one launch, in place: each is a line of as many elements, @n, as the rank has of
 * it.
 */
static inline void update(Hand *h, const Block *b, uint32_t first, uint32_t n)
{
    static const char kernel[] = "graph @update {symbols=[@n]} {\n"
                                 "  %w = input {name=\"w\"} : f32[@n]\n"
                                 "  %m = input {name=\"m\"} : f32[@n]\n"
                                 "  %dw = input {name=\"dw\"} : f32[@n]\n"
                                 "  %rate = input {name=\"rate\"} : f32\n"
                                 "  %half = constant {data=0.5} : f32\n"
                                 "  %less = mul %half %m\n"
                                 "  %rest = floor %less\n"
                                 "  %next = add %rest %dw\n"
                                 "  %sign = sign %next\n"
                                 "  %change = mul %rate %sign\n"
                                 "  %new = sub %w %change\n"
                                 "  output %new\n"
                                 "  output %next\n"
                                 "}\n";
    enum { N_IN = 4, N_OUT = 2 };
    uint32_t bufs[N_WEIGHTS * (N_IN + N_OUT)], *out = bufs + (size_t)n * N_IN;
    h->origin = "/update";
    for (uint32_t i = 0; i < n; i++) {
        uint32_t w = b->w[first + i], m = b->m[first + i], dw = b->dw[first + i];
        memcpy(bufs + (size_t)i * N_IN, (uint32_t[]){w, m, dw, b->rate}, sizeof(uint32_t[N_IN]));
        memcpy(out + (size_t)i * N_OUT, (uint32_t[]){w, m}, sizeof(uint32_t[N_OUT]));
    }
    MotInstr ins = {.kernel = find_kernel(h, kernel),
                    .n_sets = n,
                    .n_in = n * N_IN,
                    .n_bufs = n * (N_IN + N_OUT),
                    .role = MOT_ROLE_UPDATE};
    append(h, ins, bufs);
}

/*
 * Every rank has the sum, and the host reads it after the step. Nothing of the step waits for it.
 */
static inline void show_loss(Hand *h, const Block *b)
{
    h->origin = "/loss";
    uint32_t whole = exchange(h, MOT_INS_ALL_REDUCE, b->loss, 0, 0);
    mot_vec_push(&h->ctx->arena, &h->program->outputs, (MotOutput){"loss", whole, MOT_NO_BUF});
}

/* ---- The pair as one Program, and as two ---- */

/* One stage on two devices. */
static inline MotPipeline *write_program(MotCtx *ctx, const int64_t *share)
{
    static const MotRun order[] = {{MOT_SECTION_STEP, 0}};
    Hand h = make_hand(ctx, 0, 0, 2, share, 1);
    Block b = {0};
    add_common(&h, &b);
    add_attention_sources(&h, &b);
    add_mlp_sources(&h, &b);
    add_cut(&h, &b);
    attention_forward(&h, &b);
    mlp_forward(&h, &b);
    loss(&h, &b);
    show_loss(&h, &b);
    mlp_backward(&h, &b);
    attention_backward(&h, &b);
    update(&h, &b, WQ, N_WEIGHTS);
    run_in_order(&h, order, 1);
    return mot_pipeline_make(ctx, &h.program, 1, NULL, 0);
}

/*
 * Attention on n devices, and the MLP on one more. Of two micro-batches both are in flight in the
 * first stage, one in the second.
 */
static inline MotPipeline *write_stages(MotCtx *ctx, uint32_t n, const int64_t *share)
{
    static const MotRun first_order[] = {{MOT_SECTION_FORWARD, 0},
                                         {MOT_SECTION_FORWARD, 1},
                                         {MOT_SECTION_BACKWARD, 0},
                                         {MOT_SECTION_BACKWARD, 1},
                                         {MOT_SECTION_STEP, 0}},
                        second_order[] = {{MOT_SECTION_FORWARD, 0},
                                          {MOT_SECTION_BACKWARD, 0},
                                          {MOT_SECTION_FORWARD, 1},
                                          {MOT_SECTION_BACKWARD, 1},
                                          {MOT_SECTION_STEP, 0}};
    static const int64_t whole = 1;
    Hand first = make_hand(ctx, 0, 0, n, share, 2), second = make_hand(ctx, 1, n, 1, &whole, 2);
    Block a = {0}, b = {0};
    MotChannel channels[2];
    first.copies = 2;
    add_common(&first, &a);
    add_common(&second, &b);
    add_attention_sources(&first, &a);
    add_mlp_sources(&second, &b);
    first.section = second.section = MOT_SECTION_FORWARD;
    attention_forward(&first, &a);
    b.a = pass_on(&first, a.a, &second, channels, 0);
    mlp_forward(&second, &b);
    loss(&second, &b);
    first.section = second.section = MOT_SECTION_BACKWARD;
    mlp_backward(&second, &b);
    a.da = pass_on(&second, b.da, &first, channels, 1);
    attention_backward(&first, &a);
    first.section = second.section = MOT_SECTION_STEP;
    update(&first, &a, WQ, 4);
    update(&second, &b, W1, 2);
    show_loss(&second, &b);
    run_in_order(&first, first_order, 5);
    run_in_order(&second, second_order, 5);
    return mot_pipeline_make(ctx, (MotProgram *[]){first.program, second.program}, 2, channels, 2);
}

#endif
