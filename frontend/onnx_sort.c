/* Depth-first search with an explicit stack: an item is put out once all that it uses is. */
#include "frontend/onnx_sort.h"

typedef enum State { NEW, ON_STACK, DONE } State;

typedef struct Sort {
    MotUses uses;
    uint32_t *next, *stack, depth; /* next[i]: the first use of i not yet looked at */
    uint8_t *states;
    uint32_t *order, n_order;
} Sort;

static void push(Sort *s, uint32_t item)
{
    s->states[item] = ON_STACK;
    s->next[item] = s->uses.first[item];
    s->stack[s->depth++] = item;
}

/*
 * Goes on with the top of the stack. Returns false when it uses an item that is on the stack:
 * *out_again.
 */
static bool advance(Sort *s, uint32_t *out_again)
{
    uint32_t item = s->stack[s->depth - 1];
    if (s->next[item] == s->uses.first[item + 1]) {
        s->states[item] = DONE;
        s->order[s->n_order++] = item;
        s->depth--;
        return true;
    }
    *out_again = s->uses.used[s->next[item]++];
    if (s->states[*out_again] == NEW)
        push(s, *out_again);
    else if (s->states[*out_again] == ON_STACK)
        return false;
    return true;
}

MotUses mot_onnx_group_edges(MotArena *arena, uint32_t n, const MotEdges *edges)
{
    MotUses uses = {mot_arena_array(arena, uint32_t, (size_t)n + 1),
                    mot_arena_array(arena, uint32_t, edges->n)};
    for (uint32_t i = 0; i < edges->n; i++)
        uses.first[edges->data[i].user + 1]++;
    for (uint32_t i = 0; i < n; i++)
        uses.first[i + 1] += uses.first[i];
    /*
     * Filled from the back: first[i + 1] sinks to the beginning of i's list, and is shifted into
     * place after.
     */
    for (uint32_t i = edges->n; i-- > 0;)
        uses.used[--uses.first[edges->data[i].user + 1]] = edges->data[i].used;
    for (uint32_t i = 0; i < n; i++)
        uses.first[i] = uses.first[i + 1];
    uses.first[n] = edges->n;
    return uses;
}

static void set_cycle(MotArena *arena, const Sort *s, uint32_t again, MotCycle *out)
{
    uint32_t begin = s->depth;
    while (s->stack[begin - 1] != again)
        begin--;
    out->n = s->depth - begin + 1;
    out->items = mot_arena_copy(arena, s->stack + begin - 1, out->n * sizeof *s->stack);
}

bool mot_onnx_sort(MotArena *arena, uint32_t n, MotUses uses, uint32_t *out_order,
                   MotCycle *out_cycle)
{
    Sort s = {.uses = uses,
              .next = mot_arena_array(arena, uint32_t, n),
              .stack = mot_arena_array(arena, uint32_t, n),
              .states = mot_arena_array(arena, uint8_t, n),
              .order = out_order};
    uint32_t again = 0;
    for (uint32_t i = 0; i < n; i++) {
        if (s.states[i] == NEW)
            push(&s, i);
        while (s.depth && advance(&s, &again))
            ;
        if (s.depth) {
            set_cycle(arena, &s, again, out_cycle);
            return false;
        }
    }
    return true;
}
