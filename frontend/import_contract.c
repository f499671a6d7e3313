/*
 * Linear algebra: MatMul, Gemm and Einsum become contract with a spec of letters. Transposed
 * operands are only letters in another order; dims that repeat by broadcasting are dropped from the
 * operand.
 */
#include "frontend/import_node.h"

#include <string.h>

/* ---- MatMul ---- */

/* One operand of a product: its dims, and the letters of those that stay. */
typedef struct {
    MotValue value;
    char letters[MOT_MAX_RANK + 1];
} Factor;

/*
 * Letters for a matrix (or vector) with batch dims. `n_batch` is the rank of the common batch shape
 * `batch`, named a, b, …; a batch dim of size 1 where the common one is larger is dropped by a
 * reshape.
 */
static Factor name_factor(MotNode *n, MotValue x, const char *matrix, int n_batch,
                          const int64_t *batch)
{
    const MotType type = *mot_value_type(n, x);
    int n_matrix = (int)strlen(matrix), own_batch = type.rank - n_matrix, rank = 0;
    int64_t dims[MOT_MAX_RANK];
    Factor f = {0};
    for (int i = 0; i < own_batch; i++) {
        int at = n_batch - own_batch + i;
        if (type.dims[i] == 1 && batch[at] != 1)
            continue;
        f.letters[rank] = (char)('a' + at);
        dims[rank++] = type.dims[i];
    }
    memcpy(f.letters + rank, matrix, (size_t)n_matrix);
    memcpy(dims + rank, type.dims + own_batch, (size_t)n_matrix * sizeof *dims);
    f.value = mot_reshape(n->b, x, rank + n_matrix, dims);
    return f;
}

static MotValue build_contract(MotNode *n, const Factor *x, const Factor *y, const char *result)
{
    const char *spec =
        mot_arena_printf(&n->im->ctx->arena, "%s,%s->%s", x->letters, y->letters, result);
    return mot_contract(n->b, x->value, y->value, spec);
}

static bool check_product(MotNode *n, int64_t of_a, int64_t of_b)
{
    mot_node_check_dtypes(n, 0, 2);
    if (of_a != of_b)
        mot_node_fail(n, MOT_ERR_MODEL, "inner dims differ: %s by %s", mot_node_operand_text(n, 0),
                      mot_node_operand_text(n, 1));
    return mot_node_ok(n);
}

/* NumPy's matmul: vectors are matrices whose extra dim the result lacks. */
void mot_lower_matmul(MotNode *n)
{
    mot_node_check_rank(n, 0, 1, MOT_MAX_RANK);
    mot_node_check_rank(n, 1, 1, MOT_MAX_RANK);
    MotType a = *mot_node_type(n, 0), b = *mot_node_type(n, 1);
    const char *of_a = a.rank > 1 ? "mk" : "k", *of_b = b.rank > 1 ? "kn" : "k";
    if (!mot_node_ok(n) ||
        !check_product(n, a.dims[a.rank - 1], b.dims[b.rank > 1 ? b.rank - 2 : 0]))
        return;
    a.rank -= a.rank > 1 ? 2 : 1;
    b.rank -= b.rank > 1 ? 2 : 1;
    MotType batch = mot_node_broadcast(n, a, b);
    char result[MOT_MAX_RANK + 3] = {0};
    int rank = 0;
    for (; rank < batch.rank; rank++)
        result[rank] = (char)('a' + rank);
    if (of_a[0] == 'm')
        result[rank++] = 'm';
    if (of_b[1] == 'n')
        result[rank++] = 'n';
    if (!mot_node_ok(n) || !mot_node_fits_rank(n, rank))
        return;
    Factor x = name_factor(n, n->in[0], of_a, batch.rank, batch.dims);
    Factor y = name_factor(n, n->in[1], of_b, batch.rank, batch.dims);
    n->out[0] = build_contract(n, &x, &y, result);
}

/* ---- Gemm ---- */

void mot_lower_gemm(MotNode *n)
{
    mot_node_check_rank(n, 0, 2, 2);
    mot_node_check_rank(n, 1, 2, 2);
    bool flips_a = mot_node_int(n, "transA", 0) != 0, flips_b = mot_node_int(n, "transB", 0) != 0;
    double alpha = mot_node_float(n, "alpha", 1), beta = mot_node_float(n, "beta", 1);
    const MotType a = *mot_node_type(n, 0), b = *mot_node_type(n, 1);
    if (!mot_node_ok(n) || !check_product(n, a.dims[!flips_a], b.dims[flips_b]))
        return;
    Factor x = {.value = n->in[0]}, y = {.value = n->in[1]};
    strcpy(x.letters, flips_a ? "km" : "mk");
    strcpy(y.letters, flips_b ? "nk" : "kn");
    MotValue product = build_contract(n, &x, &y, "mn");
    product = alpha == 1 ? product : mot_mul_scalar(n->b, product, alpha);
    n->out[0] = product;
    if (!mot_node_has(n, 2) || beta == 0)
        return;
    MotType type = *mot_value_type(n, product),
            sum = mot_node_broadcast(n, *mot_node_type(n, 2), type);
    mot_node_check_dtypes(n, 1, 3);
    if (mot_node_ok(n) && !mot_dims_equal(&sum, &type))
        mot_node_fail(n, MOT_ERR_MODEL, "C %s does not broadcast to the product's shape",
                      mot_node_operand_text(n, 2));
    MotValue bias = beta == 1 ? n->in[2] : mot_mul_scalar(n->b, n->in[2], beta);
    n->out[0] = mot_add(n->b, product, bias);
}

/* ---- Einsum ---- */

enum { MAX_TERMS = 32, TERM_BYTES = MOT_MAX_RANK + 1 };

/*
 * An equation with explicit letters: `...` has been replaced by capital letters from the end of the
 * alphabet.
 */
typedef struct {
    char terms[MAX_TERMS][TERM_BYTES];
    uint32_t n_terms;
    char result[TERM_BYTES];
    bool has_result;
} Equation;

/*
 * Letters of the dims under an ellipsis: the last is Z, the one before Y, so that they align at the
 * end.
 */
static char ellipsis_letter(int from_end)
{
    return (char)('Z' - from_end);
}

/*
 * Reads one term up to , or - or the end; `rank` is the operand's, or -1 for the result (then
 * `under` dims are hidden).
 */
static const char *read_term(MotNode *n, const char *p, int rank, int under, char *out)
{
    int letters = 0, length = 0;
    bool has_ellipsis = false;
    for (const char *q = p; *q && *q != ',' && *q != '-'; q++)
        letters += *q != ' ' && *q != '.';
    int hidden = rank < 0 ? under : rank - letters;
    for (; *p && *p != ',' && *p != '-' && mot_node_ok(n); p++) {
        bool is_letter = (*p >= 'a' && *p <= 'z') || (*p >= 'A' && *p < 'Z' - MOT_MAX_RANK);
        if (*p == ' ')
            continue;
        if (strncmp(p, "...", 3) == 0 && !has_ellipsis) {
            has_ellipsis = true;
            for (int i = hidden; i-- > 0 && length < MOT_MAX_RANK;)
                out[length++] = ellipsis_letter(i);
            p += 2;
        } else if (is_letter && length < MOT_MAX_RANK) {
            out[length++] = *p;
        } else {
            mot_node_fail(n, MOT_ERR_MODEL, "the equation is wrong at %s",
                          mot_quote(&n->im->ctx->arena, p));
        }
    }
    if (mot_node_ok(n) && rank >= 0 && length != rank)
        mot_node_fail(n, MOT_ERR_MODEL, "a term of the equation has %d letters for rank %d", length,
                      rank);
    return p;
}

/* Without `->`: the letters that occur once, ellipsis first, then in alphabetical order. */
static void implicit_result(MotNode *n, Equation *e)
{
    char letters[128] = {0};
    int count[128] = {0}, length = 0;
    for (uint32_t i = 0; i < e->n_terms; i++)
        for (const char *p = e->terms[i]; *p; p++)
            count[(int)*p]++;
    for (int c = 'Z' - MOT_MAX_RANK; c <= 'Z'; c++)
        if (count[c])
            letters[length++] = (char)c;
    for (int c = 'A'; c <= 'z'; c++)
        if (count[c] == 1 && (c < 'Z' - MOT_MAX_RANK || c >= 'a'))
            letters[length++] = (char)c;
    if (mot_node_fits_rank(n, length))
        strcpy(e->result, letters);
}

static bool read_equation(MotNode *n, Equation *e)
{
    const char *p = mot_node_string(n, "equation", "");
    int hidden = 0;
    for (bool more = true; more && mot_node_ok(n);) {
        if (e->n_terms == n->n_in || e->n_terms == MAX_TERMS) {
            mot_node_fail(n, MOT_ERR_MODEL, "the equation has more terms than there are inputs");
            break;
        }
        char *term = e->terms[e->n_terms];
        p = read_term(n, p, mot_node_type(n, e->n_terms++)->rank, 0, term);
        int own = 0;
        for (const char *q = term; *q; q++)
            own += *q >= 'Z' - MOT_MAX_RANK && *q <= 'Z';
        hidden = own > hidden ? own : hidden;
        more = *p == ',';
        p += more;
    }
    if (mot_node_ok(n) && e->n_terms != n->n_in)
        mot_node_fail(n, MOT_ERR_MODEL, "the equation has %u terms for %u inputs", e->n_terms,
                      n->n_in);
    e->has_result = strncmp(p, "->", 2) == 0;
    if (e->has_result)
        p = read_term(n, p + 2, -1, hidden, e->result);
    else
        implicit_result(n, e);
    if (mot_node_ok(n) && *p)
        mot_node_fail(n, MOT_ERR_MODEL, "the equation is wrong at %s",
                      mot_quote(&n->im->ctx->arena, p));
    return mot_node_ok(n);
}

/*
 * Takes the diagonal of dims p < q of a factor: they are moved to the end, merged, and every (size
 * + 1)-th kept.
 */
static void take_diagonal(MotNode *n, Factor *f, int p, int q)
{
    MotValue x = mot_node_axis_last(n, f->value, p);
    x = mot_node_axis_last(n, x, q - 1); /* the dims before q moved by one */
    MotType type = *mot_value_type(n, x);
    int64_t size = type.dims[type.rank - 1];
    if (type.dims[type.rank - 2] != size) {
        mot_node_fail(n, MOT_ERR_MODEL, "letter %c stands for dims of different size",
                      f->letters[p]);
        return;
    }
    type.rank--;
    type.dims[type.rank - 1] = size * size;
    int64_t start[MOT_MAX_RANK] = {0}, step[MOT_MAX_RANK];
    for (int i = 0; i < MOT_MAX_RANK; i++)
        step[i] = 1;
    step[type.rank - 1] = size > 1 ? size + 1 : 1;
    x = mot_reshape(n->b, x, type.rank, type.dims);
    type.dims[type.rank - 1] = size;
    f->value = mot_slice(n->b, x, start, type.dims, step);
    char letter = f->letters[p];
    memmove(f->letters + q, f->letters + q + 1, strlen(f->letters + q));
    memmove(f->letters + p, f->letters + p + 1, strlen(f->letters + p));
    f->letters[type.rank - 1] = letter;
}

/* A factor without repeated letters. */
static Factor make_factor(MotNode *n, MotValue x, const char *letters)
{
    Factor f = {.value = x};
    strcpy(f.letters, letters);
    for (int q = 1; f.letters[q] && mot_node_ok(n); q++) {
        const char *first = strchr(f.letters, f.letters[q]);
        if (first == f.letters + q)
            continue;
        take_diagonal(n, &f, (int)(first - f.letters), q);
        q = 0;
    }
    return f;
}

/*
 * Drops dims of size 1 whose letter is larger elsewhere (under an ellipsis), and checks the sizes
 * of the others.
 */
static void match_sizes(MotNode *n, Factor *f, const int64_t *size)
{
    MotType type = *mot_value_type(n, f->value);
    int64_t dims[MOT_MAX_RANK];
    int rank = 0;
    for (int i = 0; i < type.rank; i++) {
        char c = f->letters[i];
        if (type.dims[i] == 1 && size[(int)c] != 1)
            continue;
        if (type.dims[i] != size[(int)c])
            mot_node_fail(n, MOT_ERR_MODEL, "letter %c stands for %lld and for %lld", c,
                          (long long)size[(int)c], (long long)type.dims[i]);
        f->letters[rank] = c;
        dims[rank++] = type.dims[i];
    }
    f->letters[rank] = 0;
    if (mot_node_ok(n))
        f->value = mot_reshape(n->b, f->value, rank, dims);
}

/* Sums what the result lacks and puts the rest in its order. */
static MotValue finish_single(MotNode *n, const Factor *f, const char *result)
{
    int64_t axes[MOT_MAX_RANK], perm[MOT_MAX_RANK];
    char rest[TERM_BYTES] = {0};
    uint32_t n_axes = 0, n_rest = 0;
    for (int i = 0; f->letters[i]; i++) {
        if (strchr(result, f->letters[i]))
            rest[n_rest++] = f->letters[i];
        else
            axes[n_axes++] = i;
    }
    for (int i = 0; result[i]; i++) {
        const char *at = strchr(rest, result[i]);
        if (!at || strchr(result + i + 1, result[i])) {
            mot_node_fail(n, MOT_ERR_MODEL, "letter %c of the result is unknown or repeated",
                          result[i]);
            return 0;
        }
        perm[i] = at - rest;
    }
    return mot_transpose(n->b, mot_reduce_sum(n->b, f->value, axes, n_axes, MOT_DROP), perm);
}

/* The letters of x and y that the result or a later term still needs. */
static void letters_after(MotNode *n, const Factor *x, const Factor *y, const Equation *e,
                          uint32_t next, char *out)
{
    char letters[128] = {0};
    int length = 0;
    const char *both[] = {x->letters, y->letters};
    for (int k = 0; k < 2; k++)
        for (const char *p = both[k]; *p; p++) {
            bool is_needed = strchr(e->result, *p) != NULL;
            for (uint32_t i = next; i < e->n_terms; i++)
                is_needed = is_needed || strchr(e->terms[i], *p);
            if (is_needed && !strchr(letters, *p))
                letters[length++] = *p;
        }
    if (mot_node_fits_rank(n, length))
        strcpy(out, letters);
}

void mot_lower_einsum(MotNode *n)
{
    Equation e = {0};
    mot_node_check_dtypes(n, 0, n->n_in);
    if (!read_equation(n, &e))
        return;
    Factor factors[MAX_TERMS];
    int64_t size[128] = {0};
    for (uint32_t i = 0; i < e.n_terms; i++) {
        factors[i] = make_factor(n, n->in[i], e.terms[i]);
        const MotType *type = mot_value_type(n, factors[i].value);
        for (int d = 0; d < type->rank; d++) {
            int64_t *s = &size[(int)factors[i].letters[d]];
            *s = *s == 0 || *s == 1 ? type->dims[d] : *s;
        }
    }
    for (uint32_t i = 0; i < e.n_terms && mot_node_ok(n); i++)
        match_sizes(n, &factors[i], size);
    Factor product = factors[0];
    for (uint32_t i = 1; i < e.n_terms && mot_node_ok(n); i++) {
        Factor next = {0};
        if (i + 1 == e.n_terms)
            strcpy(next.letters, e.result);
        else
            letters_after(n, &product, &factors[i], &e, i + 1, next.letters);
        if (!mot_node_ok(n))
            return;
        next.value = build_contract(n, &product, &factors[i], next.letters);
        product = next;
    }
    n->out[0] = mot_node_ok(n) ? finish_single(n, &product, e.result) : 0;
}
