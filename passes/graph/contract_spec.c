/* Splits and joins "ab,bc->ac". */
#include "passes/graph/contract_spec.h"

#include <string.h>

MotSpec mot_spec_of(const MotOp *contract)
{
    MotSpec spec = {.cut = mot_contract_cut(contract)};
    const char *p = mot_attrs(contract, contract)->spec;
    size_t n = strcspn(p, ",");
    memcpy(spec.in[0], p, n);
    p += n + 1;
    n = strcspn(p, "-");
    memcpy(spec.in[1], p, n);
    p += n + 2;
    memcpy(spec.out, p, strlen(p));
    return spec;
}

MotValue mot_spec_contract(MotBuilder *b, const MotOp *like, MotValue x, MotValue y,
                           const MotSpec *spec)
{
    MotAttr_contract attrs = *mot_attrs(like, contract);
    attrs.spec =
        mot_arena_printf(&b->graph->ctx->arena, "%s,%s->%s", spec->in[0], spec->in[1], spec->out);
    attrs.cut = spec->cut ? (const char[]){spec->cut, 0} : NULL;
    MotValue in[3] = {x, y, mot_contract_index(like)};
    return mot_result(b, mot_build(b, MOT_OP_CONTRACT, in, spec->cut ? 3 : 2, &attrs), 0);
}

int mot_spec_find(const char *letters, char letter)
{
    const char *p = letter ? strchr(letters, letter) : NULL;
    return p ? (int)(p - letters) : -1;
}
