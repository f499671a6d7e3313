/* The axis that is next by rank, and what becomes of it. */
#include "ir/convert.h"

typedef struct {
    MotInstrKind kind;
    uint32_t rank; /* in the order of conversions */
} Conversion;

static Conversion choose_conversion(int have, int need, uint32_t axis)
{
    if (have >= 0 && need >= 0)
        return (Conversion){MOT_INS_ALL_TO_ALL, 100};
    if (have >= 0)
        return (Conversion){MOT_INS_ALL_GATHER, MOT_MAX_AXES - axis};
    if (have != MOT_REPLICATED)
        return need >= 0 ? (Conversion){MOT_INS_REDUCE_SCATTER, 300 + axis}
                         : (Conversion){MOT_INS_ALL_REDUCE, 200 + axis};
    return (Conversion){MOT_INS_PART, 300 + axis};
}

/* The axis whose difference is to be removed next, or -1 when there is none. */
static int choose_axis(uint32_t n_axes, const MotSharding *have, const MotSharding *need)
{
    int best = -1;
    uint32_t best_rank = UINT32_MAX;
    for (uint32_t a = 0; a < n_axes; a++) {
        if (have->axis[a] == need->axis[a] && have->units[a] == need->units[a])
            continue;
        uint32_t rank = choose_conversion(have->axis[a], need->axis[a], a).rank;
        if (rank < best_rank) {
            best_rank = rank;
            best = (int)a;
        }
    }
    return best;
}

/*
 * An inner axis that splits the dim which `axis` is about to gather or part: its pieces lie inside
 * those of `axis`, so it has to be gathered before and parted again after. -1 if there is none.
 */
static int find_nested(uint32_t n_axes, const MotSharding *have, const MotSharding *need,
                       uint32_t axis)
{
    for (uint32_t b = n_axes; b-- > axis + 1;)
        if (have->axis[b] >= 0 &&
            (have->axis[b] == have->axis[axis] || have->axis[b] == need->axis[axis]))
            return (int)b;
    return -1;
}

bool mot_convert_next(uint32_t n_axes, MotSharding *have, MotSharding need, MotStep *out_step)
{
    int a = choose_axis(n_axes, have, &need);
    if (a < 0)
        return false;
    int nested = find_nested(n_axes, have, &need, (uint32_t)a);
    int to = nested >= 0 ? MOT_REPLICATED : need.axis[a];
    int64_t units = nested >= 0 ? 0 : need.units[a];
    a = nested >= 0 ? nested : a;
    int from = have->axis[a];
    *out_step =
        (MotStep){.kind = choose_conversion(from, to, (uint32_t)a).kind,
                  .axis = (uint32_t)a,
                  .move = {.dim = from >= 0 ? from : to, .dim_out = from >= 0 && to >= 0 ? to : -1},
                  .is_max = from == MOT_PARTIAL_MAX};
    have->axis[a] = (int8_t)to;
    have->units[a] = units;
    return true;
}
