/*
 * Runs generated CUDA text on the CPU, and watches it. tests/conform/cuda_host.h compiles this file and the text
 * (after cuda_shim.h) into one library.
 *
 * The threads of a block are contexts with a stack each. One runs at a time, up to its next barrier, in an order that is
 * drawn anew between any two barriers; blocks run one after the other, in a drawn order too. So a thread that needs what
 * another one has not written yet finds that it isn't there.
 *
 * The text alone is compiled with -fsanitize=thread, and the calls that the compiler then makes before every access end
 * here instead of in the sanitizer's run time. Reported are: a place that two threads of a block touch between the same
 * two barriers, or two blocks of a launch, one of them writing; shared memory read before the block wrote it; an address
 * outside of operands, results and shared memory; threads of a block that meet different barriers.
 */
#include "tests/conform/cuda_shim.h"

#include <cstdint>
#include <cstdio>
#include <cstdlib>

namespace
{

constexpr unsigned N_THREADS = 256, MANY = N_THREADS;
constexpr size_t STACK_BYTES = 64 << 10, N_PLACES = 1 << 20;

enum { RUNNING, AT_BARRIER, DONE };

struct Context {
    void *stack;     /* its pointer, when another one runs */
    int where, line; /* line: of the barrier */
};

/* What happened last to one address. Times count intervals between barriers, over all launches. */
struct Place {
    uintptr_t address;
    uint64_t written, first_read, read; /* first_read: in this launch */
    uint32_t writer, reader;
};

void *scheduler; /* its stack pointer, when a thread runs */
Context thread[N_THREADS];
char (*stacks)[STACK_BYTES];
Place *places, *shared_places; /* shared_places: of every byte of shared memory */
uint64_t now, launch_start, block_start;
uint64_t random_state;
char error[256];

} // namespace

struct MotShimBuffer {
    const char *data;
    size_t bytes;
};

/* One launch; the C side is in cuda_host.h. */
struct MotShimLaunch {
    void (*kernel)(void *const *, const long long *, long long *);
    void *const *table;
    const long long *sizes;
    long long *bad_index;
    const MotShimBuffer *buffers; /* n_buffers a set, then n_common that all sets read */
    unsigned n_buffers, n_common;
    unsigned n_blocks, n_sets;
    unsigned long long seed;
    int skipped_barrier; /* the line of one that is left out, or 0 */
    bool *is_met;        /* by line: set where a barrier is */
};

static const MotShimLaunch *launch;
MotShimIndex threadIdx, blockIdx, gridDim;
/* Of this library, from the linker. The text's only variables there are shared memory. */
extern "C" __attribute__((visibility("hidden"))) char __bss_start[], _end[];

static uint32_t draw(uint32_t n)
{
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)((random_state >> 33) % n);
}

/* The first error is kept. */
static void report(const char *what, uintptr_t address)
{
    if (!*error)
        snprintf(error, sizeof error, "%s: block %u, %u, thread %u, address %#zx", what, blockIdx.x,
                 blockIdx.y, threadIdx.x, (size_t)address);
}

/* ---- Accesses ---- */

static bool is_shared(uintptr_t address)
{
    return address >= (uintptr_t)__bss_start && address < (uintptr_t)_end;
}

static bool is_in(const MotShimBuffer *buffer, unsigned n, uintptr_t address, size_t bytes)
{
    for (unsigned i = 0; i < n; i++)
        if (address >= (uintptr_t)buffer[i].data &&
            address + bytes <= (uintptr_t)buffer[i].data + buffer[i].bytes)
            return true;
    return false;
}

/* Whether an access is one to watch: all but those of a thread's own variables, and of what nothing writes. */
static bool is_watched(uintptr_t address, size_t bytes)
{
    if (address - (uintptr_t)stacks < N_THREADS * STACK_BYTES ||
        address - (uintptr_t)&threadIdx < sizeof threadIdx ||
        address - (uintptr_t)&blockIdx < sizeof blockIdx ||
        address - (uintptr_t)&gridDim < sizeof gridDim)
        return false;
    if (is_shared(address) ||
        is_in(launch->buffers + blockIdx.y * launch->n_buffers, launch->n_buffers, address, bytes))
        return true;
    if (!is_in(launch->buffers + launch->n_sets * launch->n_buffers, launch->n_common, address,
               bytes))
        report("an access outside of operands, results and shared memory", address);
    return false;
}

static Place *find_place(uintptr_t address)
{
    if (is_shared(address))
        return &shared_places[address - (uintptr_t)__bss_start];
    Place *p = &places[(address / 4 + address % 4 * 12345677) % N_PLACES];
    /* Another one's history is forgotten: a race may be missed, none is made up. */
    if (p->address != address)
        *p = {address, 0, 0, 0, 0, 0};
    return p;
}

static bool is_of_other_block(uint64_t time)
{
    return time >= launch_start && time < block_start;
}

static void note_read(void *at, size_t bytes)
{
    uintptr_t address = (uintptr_t)at;
    if (!is_watched(address, bytes))
        return;
    Place *p = find_place(address);
    if (is_shared(address) && p->written < block_start)
        report("shared memory is read that the block has not written", address);
    else if (p->written == now && p->writer != threadIdx.x)
        report("a race of a read with another thread's write", address);
    else if (is_of_other_block(p->written))
        report("a race of a read with another block's write", address);
    p->reader = p->read == now && p->reader != threadIdx.x ? MANY : threadIdx.x;
    p->read = now;
    if (p->first_read < launch_start)
        p->first_read = now;
}

static void note_write(void *at, size_t bytes)
{
    uintptr_t address = (uintptr_t)at;
    if (at == launch->bad_index || !is_watched(address, bytes))
        return;
    Place *p = find_place(address);
    if ((p->written == now && p->writer != threadIdx.x) ||
        (p->read == now && p->reader != threadIdx.x))
        report("a race of a write with another thread", address);
    else if (!is_shared(address) &&
             (is_of_other_block(p->written) || is_of_other_block(p->first_read)))
        report("a race of a write with another block", address);
    p->written = now;
    p->writer = threadIdx.x;
}

#define HOOKS(bytes)                                                                               \
    extern "C" void __tsan_read##bytes(void *at)                                                   \
    {                                                                                              \
        note_read(at, bytes);                                                                      \
    }                                                                                              \
    extern "C" void __tsan_write##bytes(void *at)                                                  \
    {                                                                                              \
        note_write(at, bytes);                                                                     \
    }                                                                                              \
    extern "C" void __tsan_unaligned_read##bytes(void *at)                                         \
    {                                                                                              \
        note_read(at, bytes);                                                                      \
    }                                                                                              \
    extern "C" void __tsan_unaligned_write##bytes(void *at)                                        \
    {                                                                                              \
        note_write(at, bytes);                                                                     \
    }
HOOKS(1)
HOOKS(2)
HOOKS(4)
HOOKS(8)
HOOKS(16)
extern "C" void __tsan_init()
{
}
extern "C" void __tsan_func_entry(void *)
{
}
extern "C" void __tsan_func_exit()
{
}

/* ---- Threads ---- */

/* Saves the stack pointer of this context in *from, and goes on where `to` was saved. x86-64, as the kernels of the CPU. */
extern "C" void mot_shim_switch(void **from, void *to);
asm(R"(
    .text
mot_shim_switch:
    push %rbp
    push %rbx
    push %r12
    push %r13
    push %r14
    push %r15
    mov %rsp, (%rdi)
    mov %rsi, %rsp
    pop %r15
    pop %r14
    pop %r13
    pop %r12
    pop %rbx
    pop %rbp
    ret
)");

void mot_shim_barrier(int line)
{
    Context *self = &thread[threadIdx.x];
    launch->is_met[line] = true;
    if (line == launch->skipped_barrier)
        return;
    self->where = AT_BARRIER;
    self->line = line;
    mot_shim_switch(&self->stack, scheduler);
}

/* A context lives as long as the library: it runs the kernel of one block after the other. */
static void run_thread()
{
    for (;;) {
        launch->kernel(launch->table, launch->sizes, launch->bad_index);
        thread[threadIdx.x].where = DONE;
        mot_shim_switch(&thread[threadIdx.x].stack, scheduler);
    }
}

/* At the beginning of run_thread, where they are in the middle of a kernel too. */
static void reset_threads()
{
    for (unsigned i = 0; i < N_THREADS; i++) {
        enum { SAVED = 6 }; /* registers */
        void **top = (void **)(stacks[i] + STACK_BYTES) - 1;
        *--top = (void *)run_thread; /* returned to, as if called: 8 above a multiple of 16 */
        top -= SAVED;
        memset(top, 0, SAVED * sizeof *top);
        thread[i].stack = top;
    }
}

static void shuffle(unsigned *order, unsigned n)
{
    for (unsigned i = n; i > 1; i--) {
        unsigned k = draw(i), last = order[i - 1];
        order[i - 1] = order[k];
        order[k] = last;
    }
}

/* All threads up to their next barrier or the end; whether there is more to do. */
static bool run_interval(unsigned *order)
{
    now++;
    shuffle(order, N_THREADS);
    for (unsigned i = 0; i < N_THREADS; i++) {
        threadIdx.x = order[i];
        thread[order[i]].where = RUNNING;
        mot_shim_switch(&scheduler, thread[order[i]].stack);
    }
    for (unsigned i = 1; i < N_THREADS; i++)
        if (thread[i].where != thread[0].where ||
            (thread[i].where == AT_BARRIER && thread[i].line != thread[0].line)) {
            report("threads of a block meet different barriers", 0);
            reset_threads();
            return false;
        }
    return thread[0].where == AT_BARRIER;
}

extern "C" __attribute__((weak, visibility("hidden"))) const int __start_mot_barriers[],
    __stop_mot_barriers[];

/* The lines of the barriers that were compiled, repeated where a function was inlined; returns how many. */
extern "C" size_t mot_shim_barriers(const int **out_lines)
{
    *out_lines = __start_mot_barriers;
    return (size_t)(__stop_mot_barriers - __start_mot_barriers);
}

/* Runs a launch; returns NULL, or what was wrong with it. */
extern "C" const char *mot_shim_launch(const MotShimLaunch *what)
{
    if (!places) {
        places = (Place *)calloc(N_PLACES, sizeof *places);
        shared_places = (Place *)calloc((size_t)(_end - __bss_start), sizeof *places);
        stacks = (char(*)[STACK_BYTES])aligned_alloc(64, N_THREADS * STACK_BYTES);
        reset_threads();
    }
    launch = what;
    random_state = what->seed;
    *error = 0;
    gridDim = {what->n_blocks, what->n_sets};
    unsigned n = what->n_blocks * what->n_sets, order[N_THREADS];
    unsigned *blocks = (unsigned *)calloc(n, sizeof *blocks);
    for (unsigned i = 0; i < N_THREADS; i++)
        order[i] = i;
    for (unsigned i = 0; i < n; i++)
        blocks[i] = i;
    shuffle(blocks, n);
    launch_start = now + 1;
    for (unsigned i = 0; i < n && !*error; i++) {
        blockIdx = {blocks[i] % what->n_blocks, blocks[i] / what->n_blocks};
        block_start = now + 1;
        while (run_interval(order)) {
        }
    }
    free(blocks);
    return *error ? error : NULL;
}
