/*
 * CUDA C: the text of a kernel around the bodies of its nests, and the pieces that bodies are made
 * of. Linear in the nodes.
 *
 * The text begins with a prelude: the rows of ops.def as functions, and the library functions of
 * the shapes. Both stand behind #ifndef, so that texts can be joined. Nothing in the text comes
 * from a file: names are hashes and numbers.
 */
#include "codegen/cuda.h"
#include "codegen/cuda_print.h"

#include <stdarg.h>

static const MotCudaShape *const shapes[MOT_N_SHAPES] = {
    [MOT_SHAPE_POINTWISE] = &mot_cuda_points_shape,
    [MOT_SHAPE_ROW] = &mot_cuda_row,
    [MOT_SHAPE_COLUMN] = &mot_cuda_points_shape,
    [MOT_SHAPE_CONTRACT] = &mot_cuda_contract,
    [MOT_SHAPE_SCATTER] = &mot_cuda_scatter,
    [MOT_SHAPE_ROWS] = &mot_cuda_rows,
    [MOT_SHAPE_ATTENTION] = &mot_cuda_attention,
    [MOT_SHAPE_ATTENTION_GRAD] = &mot_cuda_attention_grad,
};

/* ---- Lines and blocks ---- */

static void add_line(MotCuda *c, const char *format, va_list args, const char *end)
{
    const char *line = mot_arena_vprintf(&c->ctx->arena, format, args);
    mot_text_printf(&c->text, "%*s%s%s\n", 4 * (c->depth + 1), "", line, end);
}

void mot_cuda_line(MotCuda *c, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    add_line(c, format, args, "");
    va_end(args);
}

void mot_cuda_open(MotCuda *c, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    add_line(c, format, args, " {");
    va_end(args);
    MOT_ASSERT(c->depth < MOT_CUDA_MAX_DEPTH);
    c->outer[c->depth++] = c->is_known;
    c->is_known =
        mot_arena_copy(&c->ctx->arena, c->is_known, c->nest->nodes.n * sizeof *c->is_known);
}

void mot_cuda_close(MotCuda *c)
{
    c->is_known = c->outer[--c->depth];
    mot_cuda_line(c, "}");
}

/* ---- Extents and points ---- */

const char *mot_cuda_int(MotCuda *c, int64_t value)
{
    if (value == INT64_MIN)
        return "(-9223372036854775807LL - 1)";
    return mot_arena_printf(&c->ctx->arena, "%lldLL", (long long)value);
}

const char *mot_cuda_extent(MotCuda *c, MotExtent e)
{
    MotText text;
    mot_text_init(&text, &c->ctx->arena);
    if (!e.n)
        return mot_cuda_int(c, e.factor);
    mot_text_puts(&text, "(");
    if (e.factor != 1)
        mot_text_printf(&text, "%s * ", mot_cuda_int(c, e.factor));
    for (uint32_t i = 0; i < e.n; i++)
        mot_text_printf(&text, "%sdims[%u]", i ? " * " : "", e.dim[i]);
    mot_text_puts(&text, ")");
    return mot_text_get(&text);
}

const char *mot_cuda_points(MotCuda *c, int from, int to)
{
    MotText text;
    mot_text_init(&text, &c->ctx->arena);
    for (int l = from; l < to; l++)
        mot_text_printf(&text, "%s%s", l > from ? " * " : "",
                        mot_cuda_extent(c, c->nest->loop[l].extent));
    return from < to ? mot_arena_printf(&c->ctx->arena, "(%s)", mot_text_get(&text)) : "1LL";
}

void mot_cuda_set_point(MotCuda *c, const char *point, int from, int to)
{
    if (to - from > 1) {
        mot_cuda_line(c, "long long rest = %s;", point);
        point = "rest";
    }
    for (int l = to - 1; l > from; l--) {
        const char *extent = mot_cuda_extent(c, c->nest->loop[l].extent);
        mot_cuda_line(c, "const long long i%d = rest %% %s;", l, extent);
        mot_cuda_line(c, "rest /= %s;", extent);
    }
    if (from < to)
        mot_cuda_line(c, "const long long i%d = %s;", from, point);
}

void mot_cuda_open_blocks(MotCuda *c, const char *tasks)
{
    mot_cuda_open(c, "for (long long task = blockIdx.x; task < %s; task += gridDim.x)", tasks);
}

void mot_cuda_open_threads(MotCuda *c, const char *tasks)
{
    mot_cuda_open(
        c,
        "for (long long task = blockIdx.x * (long long)MOT_THREADS + threadIdx.x; task < %s; "
        "task += gridDim.x * (long long)MOT_THREADS)",
        tasks);
}

/* ---- The whole text ---- */

/* `#ifndef NAME` and what is meant once a program. */
static void open_once(MotText *text, const char *name, const char *what)
{
    mot_text_printf(text, "#ifndef MOT_%s_%s\n#define MOT_%s_%s\n", name, what, name, what);
}

static bool has_shape(const MotKernelIr *kernel, MotShape shape)
{
    for (uint32_t i = 0; i < kernel->n_nests; i++)
        if (kernel->nest[i]->shape == shape)
            return true;
    return false;
}

static void print_library(MotCuda *c, MotShape shape)
{
    open_once(&c->text, "SHAPE", mot_shape_names[shape]);
    for (int i = 0; i < 2; i++)
        for (const char *const *line = shapes[shape]->library[i]; line && *line; line++)
            mot_text_printf(&c->text, "%s\n", *line);
    mot_text_puts(&c->text, "#endif\n");
}

static void print_prelude(MotCuda *c)
{
    open_once(&c->text, "CUDA", "PRELUDE");
    mot_text_printf(&c->text, "#define MOT_THREADS %d\n", MOT_CUDA_THREADS);
    mot_text_puts(&c->text, "#define MOT_INFINITY __int_as_float(0x7f800000)\n"
                            "#define MOT_NAN __int_as_float(0x7fc00000)\n");
    mot_cuda_print_rows(&c->text);
    mot_text_puts(&c->text, "#endif\n");
    for (int shape = 0; shape < MOT_N_SHAPES; shape++)
        if (has_shape(c->kernel, (MotShape)shape) && shapes[shape]->library[0])
            print_library(c, (MotShape)shape);
}

/*
 * b<i>: the buffers of this block's set, operands in the order of the inputs, then results in that
 * of the outputs.
 */
static void print_buffers(MotCuda *c)
{
    const MotGraph *g = c->kernel->graph;
    uint32_t n = 0;
    mot_cuda_line(c, "void *const *bufs = table + blockIdx.y * %u;", c->kernel->n_bufs);
    mot_cuda_line(c, "const long long *const __restrict__ dims = sizes + blockIdx.y;");
    for (int is_result = 0; is_result < 2; is_result++)
        for (uint32_t i = 0; i < g->body.n; i++) {
            const MotOp *op = mot_graph_op(g, g->body.data[i]);
            if (op->kind != (is_result ? MOT_OP_OUTPUT : MOT_OP_INPUT))
                continue;
            MotDtype dtype = mot_graph_type(g, is_result ? op->in[0] : op->out[0])->dtype;
            const char *qualifier = is_result ? "" : "const ", *type = mot_cuda_type(dtype)->memory;
            mot_cuda_line(c, "%s%s *const b%u = (%s%s *)bufs[%u];", qualifier, type, n, qualifier,
                          type, n);
            n++;
        }
    MOT_ASSERT(n == c->kernel->n_bufs);
}

static void print_nest(MotCuda *c, uint32_t i)
{
    c->nest = c->kernel->nest[i];
    c->is_known = mot_arena_array(&c->ctx->arena, bool, c->nest->nodes.n);
    mot_text_printf(&c->text,
                    "\n/* %s */\nextern \"C\" __global__ void __launch_bounds__(MOT_THREADS) "
                    "%s_%u(void *const *table, const long long *sizes, long long *bad_index)\n{\n",
                    mot_shape_names[c->nest->shape], c->name, i);
    print_buffers(c);
    shapes[c->nest->shape]->print(c);
    mot_text_puts(&c->text, "}\n");
}

const char *mot_cuda_name(MotCtx *ctx, const MotGraph *graph)
{
    MotText text;
    mot_text_init(&text, &ctx->arena);
    mot_graph_print(graph, &text);
    return mot_arena_printf(&ctx->arena, "k_%016llx",
                            (unsigned long long)mot_hash(text.data, text.n));
}

MotStatus mot_cuda_text(MotCtx *ctx, const MotGraph *graph, const char **out_text)
{
    MotKernelIr kernel;
    MOT_TRY(mot_kernel_build(ctx, graph, &kernel));
    MotCuda c = {.ctx = ctx, .kernel = &kernel, .name = mot_cuda_name(ctx, graph)};
    for (uint32_t i = 0; i < kernel.n_nests; i++)
        if (!shapes[kernel.nest[i]->shape])
            return mot_fail(ctx, MOT_ERR_UNSUPPORTED, MOT_NOWHERE,
                            "the kernel shape %s has no CUDA text",
                            mot_shape_names[kernel.nest[i]->shape]);
    mot_text_init(&c.text, &ctx->arena);
    print_prelude(&c);
    for (uint32_t i = 0; i < kernel.n_nests; i++)
        print_nest(&c, i);
    *out_text = mot_text_get(&c.text);
    return ctx->status;
}
