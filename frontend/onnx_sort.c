/* Depth-first search with an explicit stack: an item is put out once all that it uses is. */
#include "frontend/onnx_sort.h"

typedef enum State { NEW, ON_STACK, DONE } State;

typedef struct Sort {
    uint32_t *first; /* of each item: where its list in `used` begins; n + 1 entries */
    uint32_t *used, *next, *stack, depth;
    uint8_t *states;
    uint32_t *order, n_order;
} Sort;

static void push(Sort *s, uint32_t item)
{
    s->states[item] = ON_STACK;
    s->next[item] = s->first[item];
    s->stack[s->depth++] = item;
}

/* Goes on with the top of the stack. Returns false when it uses an item that is on the stack: *out_again. */
static bool advance(Sort *s, uint32_t *out_again)
{
    uint32_t item = s->stack[s->depth - 1];
    if (s->next[item] == s->first[item + 1]) {
        s->states[item] = DONE;
        s->order[s->n_order++] = item;
        s->depth--;
        return true;
    }
    *out_again = s->used[s->next[item]++];
    if (s->states[*out_again] == NEW)
        push(s, *out_again);
    else if (s->states[*out_again] == ON_STACK)
        return false;
    return true;
}

/* Groups the edges by user, in their order. */
static void group_edges(Sort *s, uint32_t n, const MotEdges *edges)
{
    for (uint32_t i = 0; i < edges->n; i++)
        s->first[edges->data[i].user + 1]++;
    for (uint32_t i = 0; i < n; i++)
        s->first[i + 1] += s->first[i];
    for (uint32_t i = 0; i < n; i++)
        s->next[i] = s->first[i];
    for (uint32_t i = 0; i < edges->n; i++)
        s->used[s->next[edges->data[i].user]++] = edges->data[i].used;
}

static void set_cycle(MotArena *arena, const Sort *s, uint32_t again, MotCycle *out)
{
    uint32_t begin = s->depth;
    while (s->stack[begin - 1] != again)
        begin--;
    out->n = s->depth - begin + 1;
    out->items = mot_arena_copy(arena, s->stack + begin - 1, out->n * sizeof *s->stack);
}

bool mot_onnx_sort(MotArena *arena, uint32_t n, const MotEdges *edges, uint32_t *out_order,
                   MotCycle *out_cycle)
{
    Sort s = {.first = mot_arena_array(arena, uint32_t, (size_t)n + 1),
              .used = mot_arena_array(arena, uint32_t, edges->n),
              .next = mot_arena_array(arena, uint32_t, n),
              .stack = mot_arena_array(arena, uint32_t, n),
              .states = mot_arena_array(arena, uint8_t, n),
              .order = out_order};
    group_edges(&s, n, edges);
    for (uint32_t i = 0; i < n; i++) {
        if (s.states[i] == NEW)
            push(&s, i);
        uint32_t again = 0;
        while (s.depth)
            if (!advance(&s, &again)) {
                set_cycle(arena, &s, again, out_cycle);
                return false;
            }
    }
    return true;
}
