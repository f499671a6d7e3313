/*
 * docs/ir.md is generated: the grammar and the attributes' text form from the prose below, the ops
 * from ir/ops.def.
 *
 *     test_ir_doc           compares docs/ir.md with what it should be (run in the source tree)
 *     test_ir_doc --write   writes it
 *
 * A row of the table without prose fails the test: an op isn't done before it is described.
 */
#include "ir/graph.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char path[] = "docs/ir.md";

static const char head[] =
    "# The text form of Graph, Plan and Program\n"
    "\n"
    "Generated from `ir/ops.def` by `tests/unit/test_ir_doc.c`; write it anew with `test_ir_doc "
    "--write`.\n"
    "\n"
    "Graph, Plan and Program are texts of *records* in one syntax, with one lexer, parser and "
    "printer (`ir/record.h`).\n"
    "What is printed parses back to the same records. JSON (`--json`) is a second printer of "
    "them.\n"
    "\n"
    "    motley graph 1\n"
    "    graph @gpt {\n"
    "      %ids = input {name=\"input_ids\"} : i64[8x256]\n"
    "      %w = param {name=\"wte.weight\", trained} : f32[65x384]\n"
    "      %3 = gather %w %ids {origin=\"/wte/Gather\"} : f32[8x256x384]\n"
    "      output %3 {name=\"embedded\"}\n"
    "    }\n"
    "\n"
    "## Grammar\n"
    "\n"
    "    text       = { record }\n"
    "    record     = [ value { \",\" value } \"=\" ] word { operand } [ attributes ] [ \":\" type "
    "{ \",\" type } ] [ body ]\n"
    "    operand    = word | value | symbol | integer | \"_\"\n"
    "    attributes = \"{\" attribute { \",\" attribute } \"}\"\n"
    "    attribute  = word [ \"=\" term ]\n"
    "    term       = integer | float | string | word | value | symbol | \"[\" [ term { \",\" term "
    "} ] \"]\"\n"
    "    type       = dtype [ \"[\" [ dim { \"x\" dim } ] \"]\" ]                without blanks\n"
    "    dim        = digits | \"@\" name                                    a name without the "
    "letter x\n"
    "    body       = \"{\" { record } \"}\"\n"
    "\n"
    "    value      = \"%\" name | \"%\" string       symbol = \"@\" name | \"@\" string\n"
    "    name       = one or more of A-Z a-z 0-9 _ .\n"
    "    word       = a name that begins with a letter or _\n"
    "    integer    = [ \"-\" | \"+\" ] digits          of 64 bits\n"
    "    float      = integer [ \".\" digits ] [ \"e\" integer ], not an integer | [ \"-\" | \"+\" "
    "] \"inf\" | \"nan\"\n"
    "    string     = bytes from 0x20 in double quotes, with the escapes \\\" \\\\ \\xNN (01 to "
    "ff)\n"
    "\n"
    "- A comment goes from `//` to the end of its line.\n"
    "- Operands stand on the line of their op, words before all others; `_` is an optional operand "
    "that is absent.\n"
    "  So a record ends where the next can begin, and several may share a line.\n"
    "- An attribute without a value is a flag. A brace opens attributes, not a body, where a word "
    "and then `=`, `,` or, on the\n"
    "  same line, `}` follows it.\n"
    "- Floats are printed with the fewest digits that read back to the same bits, and with a "
    "point, an exponent, `inf` or `nan`.\n"
    "- A scalar's type is its dtype: `f32`. At most 8 dims.\n"
    "- Limits: 256 MiB of text, 64 blocks and lists in one another, 64 attributes a record.\n"
    "- JSON: a list of objects with the members `op`, `results`, `operands`, `attributes`, "
    "`types`, `body`, those that are not\n"
    "  empty. Values and symbols keep their sigil, flags are `true`, `_` is `null`, `inf` and "
    "`nan` are strings.\n"
    "\n"
    "## Graph\n"
    "\n"
    "The header `motley graph 1` (it may be left out), then one record `graph @name { ... }` with "
    "a record an op, operands\n"
    "before users. A graph with symbolic dims (the kernels of a Program) lists them: `graph @k7 "
    "{symbols=[@h, @t]} { ... }`.\n"
    "\n"
    "- A value is `%name` where its name in the ONNX file is plain, begins with a letter or `_` "
    "and is unique; else `%n`, n\n"
    "  counting results from 1.\n"
    "- The types after the colon are checked against those that the operands give. They may be "
    "left out, but not of sources\n"
    "  and not where they name symbolic dims.\n"
    "- Attributes that are zero, false or empty are left out.\n"
    "- A tensor is a list of its elements in row-major order, or one number for all (at most 256 "
    "MiB of those in a text).\n"
    "- Every op may have `origin=\"node\"`, the node of the ONNX file that it comes from; derived "
    "ops have `role=dx`, `dw` or\n"
    "  `update` and `fwd=%v`, the forward op by its first result (by its place in the graph, from "
    "1, if it has none).\n"
    "- An op that owns a region has it as its body. A region is a graph of its own: names and "
    "places begin anew in it, nothing\n"
    "  outside is seen (what it needs is an operand of its op), and nothing of it outside. It has "
    "`input`s and `output`s,\n"
    "  which the op gives and takes by their order, no parameters and no symbolic dims. At most "
    "8 regions in one another.\n"
    "\n"
    "      %sum, %sums = scan %zero %xs {carried=1, axes=[0], out_axes=[0]} : f32[4], f32[10x4] {\n"
    "        %s = input {name=\"s\"} : f32[4]\n"
    "        %x = input {name=\"x\"} : f32[4]\n"
    "        %3 = add %s %x : f32[4]\n"
    "        output %3 {name=\"next\"}\n"
    "        output %3 {name=\"sum\"}\n"
    "      }\n";

typedef struct {
    const char *operands, *results, *meaning;
} Prose;

static const Prose prose[MOT_N_OPS] = {
    [MOT_OP_INPUT] = {"", "as declared",
                      "What each step is given: tokens, labels, images. `units`: dim 0 is dealt "
                      "out to devices in that many equal pieces, no smaller ones."},
    [MOT_OP_PARAM] = {"", "as declared",
                      "A parameter. `name` is its initializer in the file; the file's tensor, of "
                      "shape `file_dims`, reshaped to atoms and "
                      "transposed so that dim i is atom `perm[i]`, is the value. `trained`: it "
                      "gets a gradient. `tied` names a second "
                      "initializer that holds the same, or with `tied_transposed` its transpose. "
                      "`state_of`: optimizer state of that "
                      "parameter, zero at first, in its layout."},
    [MOT_OP_CONSTANT] = {"", "as declared", "The tensor `data`."},
    [MOT_OP_IOTA] = {"", "`dtype[dims]`", "Each element is its index along `axis`."},
    [MOT_OP_OUTPUT] = {"x", "none", "Gives x the name of an output."},
    [MOT_OP_GRADIENT] = {"param, g", "none", "g is the gradient of the loss by the parameter."},
    [MOT_OP_ASSIGN] = {"param, x", "none",
                       "The parameter takes the value x at the end of the step."},
    [MOT_OP_CAST] = {"x", "x with `dtype`",
                     "Rounds to nearest, ties to even; to integers toward zero."},
    [MOT_OP_RESHAPE] = {"x", "`dims`", "The same elements in row-major order."},
    [MOT_OP_TRANSPOSE] = {"x", "x, permuted", "Dim i of the result is dim `perm[i]` of x."},
    [MOT_OP_BROADCAST] = {"x", "`dims`", "Aligned at the last dim; dims of size 1 repeat."},
    [MOT_OP_SLICE] =
        {"x", "`size`",
         "Element i of a result dim is element `start + i * step` of x's; `step` may be negative."},
    [MOT_OP_PAD] = {"x", "x + `lo` + `hi`",
                    "`value` around x: `lo` elements before and `hi` after it in each dim."},
    [MOT_OP_CONCAT] = {"x...", "x, sizes of `axis` summed",
                       "The operands one after another along `axis`."},
    [MOT_OP_GATHER] = {"table, index", "table with `axis` replaced by the dims of index",
                       "Rows of the table along `axis`. Indices are in [0, size). `batched`: the "
                       "dims before `axis` are dims of index too, each with rows of its own."},
    [MOT_OP_SCATTER_ADD] = {"index, update",
                            "update with the dims of index replaced by `size` at `axis`",
                            "Zeros, to which every row of update is added at its index; equal "
                            "indices in their order. The "
                            "transpose of gather, `batched` as there."},
    [MOT_OP_REDUCE_SUM] = {"x", "x without `axes`; with `keep` they have size 1",
                           "The sum over `axes`."},
    [MOT_OP_REDUCE_MAX] = {"x", "x without `axes`; with `keep` they have size 1",
                           "The maximum over `axes`."},
    [MOT_OP_CONTRACT] = {"x, y, k_index[n]?", "the letters after `->`",
                         "Einstein sum: in `spec`, as in `btc,chd->bthd`, each letter is a loop; "
                         "letters missing in the result are summed. "
                         "`accumulate`: the dtype in which sums are kept; without it `ref` keeps "
                         "them in double, kernels in f32. With k_index, i64, the "
                         "summed letter `cut` runs over the listed "
                         "positions alone, as if they had been gathered from both operands; n is "
                         "any number, 0 gives zeros. The gradient of "
                         "positions that are not listed is 0."},
    [MOT_OP_TOP_K] = {"x", "index, value: x with `k` as its last dim, i32 and x",
                      "The `k` entries of every row largest by magnitude, in the order of the "
                      "index; of equal ones the lower index, NaN above all."},
    [MOT_OP_SCATTER_MEAN] = {"index[P, .., k], value[P, .., k]", "value[.., `size`]",
                             "At each position of a row the mean of the values of those of the P "
                             "parts that name it, summed in their order; 0 where none does. "
                             "Indices ascend, which is checked."},
    [MOT_OP_PACK] = {"index[.., k], value[.., k]", "u8[.., bytes]",
                     "Rows of `k` of `size` entries as messages (ir/sparse.h): indices in the "
                     "fewest bits, values as `wire` says, f32, bf16, int8 or sign."},
    [MOT_OP_UNPACK] = {"message[P, .., bytes]", "index[P, .., k], value[P, .., k]",
                       "What pack wrote. Indices that don't ascend or leave the row and values "
                       "that are not finite are an error that names the peer, P's index."},
    [MOT_OP_SCAN] = {"initial..., scanned..., rest...", "the last carried values, the stacks",
                     "Runs its region once a step. The region's inputs are, by place, the "
                     "`carried` values, which are the initial "
                     "operands at first; slice t, in step t, of each scanned operand along its "
                     "entry of `axes`; and the rest, in every step the "
                     "same. Its outputs are the values to carry on, and one slice for each entry "
                     "of `out_axes`, along which they are stacked."},
    [MOT_OP_SOFTMAX] = {"x", "x", "exp(x - max) / sum over `axis`."},
    [MOT_OP_SOFTMAX_GRAD] = {"y, g", "y", "y * (g - sum(g * y)) over `axis`, y the softmax."},
    [MOT_OP_CROSS_ENTROPY] = {"logits[..., V], labels[...]", "labels, in the dtype of logits",
                              "The loss of every row: -log softmax(logits)[label], with label "
                              "`smoothing`; 0 where the label is `ignore`. No mean."},
    [MOT_OP_CROSS_ENTROPY_GRAD] = {"logits, labels, g[...]", "logits",
                                   "The gradient of the logits."},
    [MOT_OP_LAYER_NORM] = {"x, scale, bias?",
                           "y: x; mean, rstd: x with the normalised dims of size 1",
                           "y = (x - mean) * rstd * scale + bias over the dims from `axis` on; "
                           "rstd = 1 / sqrt(variance + `eps`)."},
    [MOT_OP_LAYER_NORM_GRAD] = {"x, scale, mean, rstd, g", "dx, dscale, dbias",
                                "The gradients of layer_norm."},
    [MOT_OP_GELU] = {"x", "x",
                     "x * Phi(x), Phi the normal distribution; with `tanh` its approximation "
                     "0.5 x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3)))."},
    [MOT_OP_GELU_GRAD] = {"x, g", "x", "g * gelu'(x)."},
    [MOT_OP_ATTENTION] = {"q[B,T,H,D], k[B,S,G,D], v[B,S,G,E], mask?", "out[B,T,H,E], lse[B,H,T]",
                          "softmax(`scale` q k^T + mask) v. H is a multiple of G: query head h "
                          "reads key head h / (H / G). The mask is f32, "
                          "broadcast to [B,H,T,S]. `causal`: position t sees s <= t + S - T. lse "
                          "is the logarithm of the sum of exponentials."},
    [MOT_OP_ATTENTION_GRAD] = {"q, k, v, out, lse, g, mask?", "dq, dk, dv",
                               "The gradients of attention."},
    [MOT_OP_SGD] = {"p, g, lr", "p",
                    "p - lr * (g + `wd` * p). lr is an f32 scalar, here and below."},
    [MOT_OP_MOMENTUM] = {"p, m, g, lr", "p, m", "m = `momentum` * m + g + `wd` * p; p - lr * m."},
    [MOT_OP_ADAM] = {"p, m, v, g, lr, step", "p, m, v",
                     "Adam as PyTorch has it; `decoupled` weight decay is AdamW. step is an f32 "
                     "scalar that counts from 1."},
};

/* Text in a cell of a table: a bar would end it. */
static void add_cell(MotText *text, const char *string)
{
    for (const char *p = string; *p; p++) {
        mot_text_puts(text, *p == '|' ? "\\" : "");
        mot_text_add(text, p, 1);
    }
}

static void add_classes(MotText *text, unsigned classes)
{
    static const struct {
        unsigned class;
        const char *name;
    } names[] = {{MOT_CLASS_FLOAT, "float"}, {MOT_CLASS_INT, "integer"}, {MOT_CLASS_BOOL, "bool"}};
    const char *separator = "";
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (classes & names[i].class) {
            mot_text_printf(text, "%s%s", separator, names[i].name);
            separator = ", ";
        }
    }
}

static void add_pointwise(MotText *text)
{
    mot_text_puts(text, "\n## Pointwise ops\n\n"
                        "Operands broadcast as in NumPy and have one dtype (`select`: b and c; a "
                        "is bool). The result has that dtype, or is\n"
                        "bool. The reference computes floats in f64 and rounds once.\n\n"
                        "| op | operands | dtypes | result | value |\n|---|---|---|---|---|\n");
    for (int kind = 1; kind < MOT_N_OPS; kind++) {
        const MotOpInfo *info = mot_op_info((MotOpKind)kind);
        if (info->class != MOT_POINTWISE)
            continue;
        mot_text_printf(text, "| `%s` | %.*s | ", info->name, (int)(3 * info->n_max - 2),
                        "a, b, c");
        add_classes(text, info->operand_classes);
        mot_text_printf(text, " | %s | `", info->gives_bool ? "bool" : "same");
        add_cell(text, info->expression);
        mot_text_puts(text, "` |\n");
    }
}

static const char *attr_kind_text(MotAttrKind kind)
{
    static const char *const texts[] = {
        [MOT_ATTR_INT] = "integer",   [MOT_ATTR_FLOAT] = "number",  [MOT_ATTR_FLAG] = "flag",
        [MOT_ATTR_STR] = "string",    [MOT_ATTR_INTS] = "integers", [MOT_ATTR_DTYPE] = "dtype",
        [MOT_ATTR_TENSOR] = "tensor",
    };
    return texts[kind];
}

static void add_flags(MotText *text, const MotOpInfo *info)
{
    if (info->flags & MOT_FLAG_REGION)
        mot_text_puts(text, " Owns a region.");
    if (info->flags & MOT_FLAG_OWN_GRADIENT)
        mot_text_puts(text, " Has a gradient rule of its own.");
    if (info->flags & MOT_FLAG_UPDATE)
        mot_text_puts(text, " Its first results replace its first operands.");
    unsigned linear = info->flags & (MOT_FLAG_OWN_GRADIENT - 1);
    for (unsigned i = 0; i < 8; i++)
        if (linear & 1u << i)
            mot_text_printf(text, " Linear in operand %u.", i);
}

static bool add_op(MotText *text, MotOpKind kind)
{
    const MotOpInfo *info = mot_op_info(kind);
    const Prose *p = &prose[kind];
    if (!p->meaning) {
        fprintf(stderr, "tests/unit/test_ir_doc.c: describe the op %s\n", info->name);
        return false;
    }
    mot_text_printf(text, "| `%s` | ", info->name);
    add_cell(text, p->operands);
    mot_text_puts(text, " | ");
    for (const MotAttrField *f = info->fields; f->name; f++)
        mot_text_printf(text, "%s`%s` %s", f == info->fields ? "" : ", ", f->name,
                        attr_kind_text(f->kind));
    mot_text_puts(text, " | ");
    add_cell(text, p->results);
    mot_text_puts(text, " | ");
    add_cell(text, p->meaning);
    add_flags(text, info);
    mot_text_puts(text, " |\n");
    return true;
}

static bool add_class(MotText *text, MotOpClass class, const char *intro)
{
    bool is_complete = true;
    mot_text_printf(
        text,
        "\n## %s\n\n| op | operands | attributes | results | meaning |\n|---|---|---|---|---|\n",
        intro);
    for (int kind = 1; kind < MOT_N_OPS; kind++)
        if (mot_op_info((MotOpKind)kind)->class == class)
            is_complete = add_op(text, (MotOpKind)kind) && is_complete;
    return is_complete;
}

static bool make_doc(MotText *text)
{
    mot_text_puts(text, head);
    add_pointwise(text);
    bool is_complete = add_class(text, MOT_SOURCE, "Sources");
    is_complete = add_class(text, MOT_SINK, "Sinks") && is_complete;
    is_complete = add_class(text, MOT_PRIMITIVE, "Primitives") && is_complete;
    is_complete = add_class(text, MOT_COMPOSITE,
                            "Composites\n\nEach has an expansion into primitives, `ir/expand.c`, "
                            "which is its meaning; `?` marks an "
                            "operand that may be absent.") &&
                  is_complete;
    return is_complete;
}

static bool write_doc(const MotText *text)
{
    FILE *file = fopen(path, "wb");
    bool is_written = file && fwrite(text->data, 1, text->n, file) == text->n;
    is_written = file && fclose(file) == 0 && is_written;
    if (!is_written)
        perror(path);
    return is_written;
}

static bool is_up_to_date(const MotText *text)
{
    FILE *file = fopen(path, "rb");
    if (!file) {
        perror(path);
        return false;
    }
    char *old = calloc(text->n + 1, 1); /* one more, so that a longer file differs */
    bool is_equal =
        old && fread(old, 1, text->n + 1, file) == text->n && memcmp(old, text->data, text->n) == 0;
    free(old);
    fclose(file);
    if (!is_equal)
        fprintf(stderr, "%s is out of date: run `test_ir_doc --write` in the source tree\n", path);
    return is_equal;
}

int main(int argc, char **argv)
{
    MotCtx ctx;
    mot_ctx_init(&ctx);
    MotText text;
    mot_text_init(&text, &ctx.arena);
    bool is_ok = make_doc(&text);
    if (argc == 2 && strcmp(argv[1], "--write") == 0)
        is_ok = is_ok && write_doc(&text);
    else
        is_ok = is_ok && is_up_to_date(&text);
    mot_ctx_deinit(&ctx);
    return is_ok ? EXIT_SUCCESS : EXIT_FAILURE;
}
