/* Splits and joins "ab,bc->ac". */
#include "passes/graph/contract_spec.h"

#include <string.h>

MotSpec mot_spec_of(const MotOp *contract)
{
    MotSpec spec = {0};
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

MotValue mot_spec_contract(MotBuilder *b, MotValue x, MotValue y, const MotSpec *spec)
{
    return mot_contract(b, x, y, mot_arena_printf(&b->graph->ctx->arena, "%s,%s->%s", spec->in[0], spec->in[1], spec->out));
}

int mot_spec_find(const char *letters, char letter)
{
    const char *p = letter ? strchr(letters, letter) : NULL;
    return p ? (int)(p - letters) : -1;
}
