/* Kernel images: check, map, unmap. */
#include "support/image.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>

const char *const mot_isa_names[] = {"avx2", "avx512"};

static const char magic[8] = {'M', 'O', 'T', 'I', 'M', 'A', 'G', 'E'};

bool mot_isa_is_supported(MotIsa isa)
{
#if defined(__x86_64__)
    __builtin_cpu_init();
    return isa == MOT_ISA_AVX512 ? __builtin_cpu_supports("x86-64-v4") != 0
                                 : __builtin_cpu_supports("x86-64-v3") != 0;
#else
    (void)isa;
    return false;
#endif
}

int mot_isa_best(void)
{
    int best = -1;
    for (int isa = 0; isa < MOT_N_ISAS; isa++)
        if (mot_isa_is_supported((MotIsa)isa))
            best = isa;
    return best;
}

static uint64_t compute_checksum(const void *image, size_t n)
{
    enum { START = offsetof(MotImageHeader, version) };
    return mot_hash((const char *)image + START, n - START);
}

void mot_image_seal(void *image)
{
    MotImageHeader *h = image;
    memcpy(h->magic, magic, sizeof magic);
    h->version = MOT_IMAGE_VERSION;
    h->checksum = compute_checksum(image, sizeof *h + h->payload_bytes);
}

bool mot_image_is_valid(const void *image, size_t n)
{
    MotImageHeader h;
    if (n < sizeof h)
        return false;
    memcpy(&h, image, sizeof h);
    if (memcmp(h.magic, magic, sizeof magic) != 0 || h.version != MOT_IMAGE_VERSION ||
        h.payload_bytes != n - sizeof h || h.isa >= MOT_N_ISAS || h.n_nests > MOT_IMAGE_NESTS ||
        h.checksum != compute_checksum(image, n))
        return false;
    for (uint32_t i = 0; i < h.n_nests; i++)
        if (h.nest[i].run >= h.payload_bytes || h.nest[i].tasks >= h.payload_bytes ||
            h.nest[i].scratch_bytes >= h.payload_bytes)
            return false;
    return true;
}

/* An address in the mapping as a function. ISO C has no such cast; POSIX does. */
static void set_entry(void *out_function, const char *address)
{
    memcpy(out_function, &address, sizeof address);
}

MotStatus mot_image_map(MotCtx *ctx, const void *image, size_t n, MotImage *out_image)
{
    MotImageHeader h;
    if (!mot_image_is_valid(image, n))
        return mot_fail(ctx, MOT_ERR_MISMATCH, MOT_NOWHERE,
                        "a kernel image is damaged or of another version");
    memcpy(&h, image, sizeof h);
    if (!mot_isa_is_supported((MotIsa)h.isa))
        return mot_fail(ctx, MOT_ERR_MISMATCH, MOT_NOWHERE,
                        "a kernel image needs %s, which this machine lacks", mot_isa_names[h.isa]);
    char *base = mot_fault(ctx->faults, MOT_FAULT_map)
                     ? MAP_FAILED
                     : mmap(NULL, h.payload_bytes, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (base == MAP_FAILED)
        return mot_fail(ctx, MOT_ERR_IO, MOT_NOWHERE, "mapping a kernel image: %s",
                        strerror(errno));
    memcpy(base, (const char *)image + sizeof h, h.payload_bytes);
    *out_image = (MotImage){.base = base, .bytes = h.payload_bytes, .n_nests = h.n_nests};
    if (mprotect(base, h.payload_bytes, PROT_READ | PROT_EXEC) != 0) {
        mot_image_unmap(out_image);
        return mot_fail(ctx, MOT_ERR_IO, MOT_NOWHERE, "making a kernel image executable: %s",
                        strerror(errno));
    }
    for (uint32_t i = 0; i < h.n_nests; i++) {
        set_entry(&out_image->nest[i].run, base + h.nest[i].run);
        set_entry(&out_image->nest[i].tasks, base + h.nest[i].tasks);
        set_entry(&out_image->nest[i].scratch_bytes, base + h.nest[i].scratch_bytes);
        out_image->nest[i].is_coarse = h.nest[i].is_coarse != 0;
    }
    return MOT_OK;
}

void mot_image_unmap(MotImage *image)
{
    if (image->base)
        munmap(image->base, image->bytes);
    *image = (MotImage){0};
}
