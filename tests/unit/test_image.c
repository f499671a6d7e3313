/*
 * support/image and codegen/image: flat images, what is refused, mapping at several addresses; the
 * cache of codegen/codegen.
 */
#include "codegen/codegen.h"
#include "ir/builder.h"
#include "support/image.h"
#include "tests/test_ctx.h"

#include <elf.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

/* y = exp(x) of n elements: an image with code and constants. */
static MotGraph *make_graph(MotCtx *ctx, int64_t n)
{
    MotGraph *g = mot_graph_make(ctx, "k");
    MotBuilder b = mot_builder_make(g);
    mot_output(&b, "y", mot_exp(&b, mot_input(&b, "x", mot_type_make(MOT_F32, 1, &n))));
    return g;
}

static FILE *open_file(const char *path, const char *mode)
{
    FILE *file = fopen(path, mode);
    if (!file)
        fail_msg("%s can't be opened", path);
    return file;
}

static MotImageBytes make_image(MotCtx *ctx)
{
    MotImageBytes image;
    if (mot_codegen_kernel(ctx, make_graph(ctx, 100), MOT_ISA_AVX2, 42, &image) != MOT_OK)
        fail_msg("%s", mot_text_get(&ctx->error));
    return image;
}

static MotStatus compile_body(MotCtx *ctx, void *out_image)
{
    return mot_codegen_kernel(ctx, make_graph(ctx, 100), MOT_ISA_AVX2, 42, out_image);
}

/* What LLVM holds is given back, wherever our own memory ends (a leak fails under ASan). */
static void running_out_of_memory_is_clean(void **state)
{
    (void)state;
    MotStatus status = MOT_ERR_MEMORY;
    long n = 0;
    while (status == MOT_ERR_MEMORY) {
        MotCtx ctx;
        MotImageBytes image;
        mot_ctx_init(&ctx);
        mot_ctx_fail_at(&ctx, MOT_FAULT_alloc, ++n);
        status = mot_ctx_run(&ctx, compile_body, &image);
        mot_ctx_deinit(&ctx);
    }
    assert_int_equal(status, MOT_OK);
    assert_true(n > 20);
}

static void check_runs(const MotImage *image)
{
    float x[100], y[100];
    void *bufs[] = {x, y};
    for (int i = 0; i < 100; i++)
        x[i] = (float)i / 50 - 1;
    assert_int_equal(image->n_nests, 1);
    assert_int_equal(image->nest[0].scratch_bytes(NULL), 0);
    image->nest[0].run(bufs, NULL, 0, image->nest[0].tasks(NULL), NULL, NULL);
    assert_float_equal(y[50], 1, 1e-6);
    assert_float_equal(y[99], 2.66445613, 1e-6);
}

static void an_image_runs_wherever_it_is_mapped(void **state)
{
    MotImageBytes bytes = make_image(*state);
    if (!mot_isa_is_supported(MOT_ISA_AVX2))
        skip();
    MotImage first, second;
    assert_int_equal(mot_image_map(*state, bytes.data, bytes.n, &first), MOT_OK);
    assert_int_equal(mot_image_map(*state, bytes.data, bytes.n, &second), MOT_OK);
    assert_ptr_not_equal(first.base, second.base);
    check_runs(&first);
    mot_image_unmap(&first);
    check_runs(&second);
    mot_image_unmap(&second);
}

/* ---- Damaged images ---- */

static void a_flipped_bit_anywhere_is_noticed(void **state)
{
    MotImageBytes bytes = make_image(*state);
    unsigned char *data = bytes.data;
    assert_true(mot_image_is_valid(data, bytes.n));
    for (size_t i = 0; i < bytes.n; i++) {
        data[i] ^= 1;
        assert_false(mot_image_is_valid(data, bytes.n));
        data[i] ^= 1;
    }
    for (size_t n = 0; n < bytes.n; n++)
        assert_false(mot_image_is_valid(data, n));
    MotImage image;
    data[bytes.n - 1] ^= 1;
    assert_int_equal(mot_image_map(*state, data, bytes.n, &image), MOT_ERR_MISMATCH);
}

static void another_version_is_refused(void **state)
{
    MotImageBytes bytes = make_image(*state);
    MotImageHeader *header = bytes.data;
    header->isa = MOT_N_ISAS;
    mot_image_seal(header);
    assert_false(mot_image_is_valid(bytes.data, bytes.n));
    header->isa = MOT_ISA_AVX2;
    mot_image_seal(header);
    assert_true(mot_image_is_valid(bytes.data, bytes.n));
    header->nest[0].run = (uint32_t)header->payload_bytes;
    mot_image_seal(header);
    assert_false(mot_image_is_valid(bytes.data, bytes.n));
}

/* ---- Objects: one made by hand, with a function that is called or a constant that is read ---- */

enum { NAME_RUN = 1, NAME_TASKS = 6, NAME_SCRATCH = 13, NAME_CALLED = 22 };
enum { S_NULL, S_TEXT, S_RELA, S_SYMBOLS, S_NAMES, S_SECTION_NAMES, N_SECTIONS };
enum { Y_NULL, Y_RUN, Y_TASKS, Y_SCRATCH, Y_CALLED, N_SYMBOLS };

typedef struct {
    Elf64_Ehdr header;
    Elf64_Shdr section[N_SECTIONS];
    Elf64_Sym symbol[N_SYMBOLS];
    Elf64_Rela relocation;
    char text[16], names[32], section_names[16];
} Object;

/* text[0..5): call CALLED; text[8]: the called function, a return. */
static void make_object(Object *o, bool is_defined, uint32_t type)
{
    *o = (Object){.names = "\0run0\0tasks0\0scratch0\0callee", .section_names = "\0.text"};
    memcpy(o->text, "\xe8\0\0\0\0\xc3\0\0\xc3", 9);
    memcpy(o->header.e_ident, ELFMAG, SELFMAG);
    o->header.e_ident[EI_CLASS] = ELFCLASS64;
    o->header.e_machine = EM_X86_64;
    o->header.e_type = ET_REL;
    o->header.e_shentsize = sizeof(Elf64_Shdr);
    o->header.e_shoff = offsetof(Object, section);
    o->header.e_shnum = N_SECTIONS;
    o->header.e_shstrndx = S_SECTION_NAMES;
    o->section[S_TEXT] = (Elf64_Shdr){.sh_name = 1,
                                      .sh_type = SHT_PROGBITS,
                                      .sh_flags = SHF_ALLOC | SHF_EXECINSTR,
                                      .sh_offset = offsetof(Object, text),
                                      .sh_size = sizeof o->text,
                                      .sh_addralign = 16};
    o->section[S_RELA] = (Elf64_Shdr){.sh_type = SHT_RELA,
                                      .sh_offset = offsetof(Object, relocation),
                                      .sh_size = sizeof o->relocation,
                                      .sh_info = S_TEXT,
                                      .sh_link = S_SYMBOLS};
    o->section[S_SYMBOLS] = (Elf64_Shdr){.sh_type = SHT_SYMTAB,
                                         .sh_offset = offsetof(Object, symbol),
                                         .sh_size = sizeof o->symbol,
                                         .sh_link = S_NAMES};
    o->section[S_NAMES] = (Elf64_Shdr){
        .sh_type = SHT_STRTAB, .sh_offset = offsetof(Object, names), .sh_size = sizeof o->names};
    o->section[S_SECTION_NAMES] = (Elf64_Shdr){.sh_type = SHT_STRTAB,
                                               .sh_offset = offsetof(Object, section_names),
                                               .sh_size = sizeof o->section_names};
    o->symbol[Y_RUN] = (Elf64_Sym){.st_name = NAME_RUN, .st_shndx = S_TEXT};
    o->symbol[Y_TASKS] = (Elf64_Sym){.st_name = NAME_TASKS, .st_shndx = S_TEXT};
    o->symbol[Y_SCRATCH] = (Elf64_Sym){.st_name = NAME_SCRATCH, .st_shndx = S_TEXT};
    o->symbol[Y_CALLED] = (Elf64_Sym){
        .st_name = NAME_CALLED, .st_shndx = is_defined ? S_TEXT : SHN_UNDEF, .st_value = 8};
    o->relocation = (Elf64_Rela){
        .r_offset = 1, .r_info = ELF64_R_INFO((uint64_t)Y_CALLED, type), .r_addend = -4};
}

static void a_call_within_the_object_is_resolved(void **state)
{
    Object o;
    MotImageBytes image;
    make_object(&o, true, R_X86_64_PLT32);
    assert_int_equal(mot_image_layout(*state, &o, sizeof o, MOT_ISA_AVX2, 0, 1, &image), MOT_OK);
    const MotImageHeader *header = image.data;
    int32_t distance;
    memcpy(&distance, (char *)image.data + sizeof *header + header->nest[0].run + 1,
           sizeof distance);
    assert_int_equal(distance, 8 - 5);
}

static void check_refused(MotCtx *ctx, const Object *o, size_t n, const char *message)
{
    MotImageBytes image;
    assert_int_equal(mot_image_layout(ctx, o, n, MOT_ISA_AVX2, 0, 1, &image), MOT_ERR_INTERNAL);
    if (!strstr(mot_text_get(&ctx->error), message))
        fail_msg("%s\nexpected: %s", mot_text_get(&ctx->error), message);
    mot_error_clear(ctx);
}

static void what_needs_a_linker_is_refused(void **state)
{
    Object o;
    make_object(&o, false, R_X86_64_PLT32);
    check_refused(*state, &o, sizeof o, "undefined symbol callee");
    make_object(&o, true, R_X86_64_64);
    check_refused(*state, &o, sizeof o, "depends on the address");
    make_object(&o, true, R_X86_64_PC32);
    o.section[S_TEXT].sh_flags |= SHF_WRITE;
    check_refused(*state, &o, sizeof o, "writable data");
    make_object(&o, true, R_X86_64_PC32);
    o.relocation.r_offset = sizeof o.text;
    check_refused(*state, &o, sizeof o, "outside of its section");
    make_object(&o, true, R_X86_64_PC32);
    o.symbol[Y_TASKS].st_name = NAME_CALLED;
    check_refused(*state, &o, sizeof o, "no function tasks0");
    make_object(&o, true, R_X86_64_PC32);
    check_refused(*state, &o, 40, "no relocatable x86-64 ELF file");
}

/* ---- Cache ---- */

static char *make_folder(MotCtx *ctx)
{
    const char *tmp = getenv("TMPDIR");
    char *folder = mot_arena_printf(&ctx->arena, "%s/motley-cache-XXXXXX", tmp ? tmp : "/tmp");
    assert_non_null(mkdtemp(folder));
    return folder;
}

/* Compiles one kernel with this cache and gives the image. */
static const MotKernel *compile(MotCtx *ctx, const char *folder)
{
    MotProgram *p = mot_arena_new(&ctx->arena, MotProgram);
    p->ctx = ctx;
    mot_vec_push(&ctx->arena, &p->kernels, (MotKernel){.name = "k", .graph = make_graph(ctx, 100)});
    MotCodegenOpts opts = {.isa = MOT_ISA_AVX2, .cache_dir = folder};
    if (mot_codegen_program(ctx, p, &opts) != MOT_OK)
        fail_msg("%s", mot_text_get(&ctx->error));
    return &p->kernels.data[0];
}

static void the_cache_gives_the_same_image_and_mends_itself(void **state)
{
    MotCtx *ctx = *state;
    char *folder = make_folder(ctx);
    const char *cache = mot_arena_printf(&ctx->arena, "%s/a/b", folder);
    const MotKernel *cold = compile(ctx, cache);
    const MotImageHeader *header = cold->image;
    const char *file = mot_arena_printf(&ctx->arena, "%s/avx2-%016llx.img", cache,
                                        (unsigned long long)header->key);
    for (int damage = 0; damage < 3; damage++) {
        FILE *f = open_file(file, damage == 2 ? "wb" : "r+b"); /* it is written after each damage */
        if (damage == 1) {
            fseek(f, -1, SEEK_END);
            fputc(0x5a, f);
        }
        fclose(f);
        const MotKernel *again = compile(ctx, cache);
        assert_int_equal(again->image_bytes, cold->image_bytes);
        assert_memory_equal(again->image, cold->image, cold->image_bytes);
        f = open_file(file, "rb");
        char *bytes = mot_arena_alloc(&ctx->arena, cold->image_bytes + 1);
        assert_int_equal(fread(bytes, 1, cold->image_bytes + 1, f), cold->image_bytes);
        assert_memory_equal(bytes, cold->image, cold->image_bytes);
        fclose(f);
    }
    assert_int_equal(unlink(file), 0);
    assert_int_equal(rmdir(cache), 0); /* no drafts are left */
    assert_int_equal(rmdir(mot_arena_printf(&ctx->arena, "%s/a", folder)), 0);
    assert_int_equal(rmdir(folder), 0);
}

/* The image in the cache is what is used: one with the right key but other code runs that code. */
static void a_cached_image_is_used(void **state)
{
    MotCtx *ctx = *state;
    char *folder = make_folder(ctx);
    const MotKernel *cold = compile(ctx, folder);
    MotImageHeader *header = mot_arena_copy(&ctx->arena, cold->image, cold->image_bytes);
    header->unused = 7;
    mot_image_seal(header);
    const char *file = mot_arena_printf(&ctx->arena, "%s/avx2-%016llx.img", folder,
                                        (unsigned long long)header->key);
    FILE *f = open_file(file, "wb");
    assert_int_equal(fwrite(header, 1, cold->image_bytes, f), cold->image_bytes);
    fclose(f);
    const MotImageHeader *warm = compile(ctx, folder)->image;
    assert_int_equal(warm->unused, 7);
    header->key++; /* compiled from something else */
    mot_image_seal(header);
    f = open_file(file, "wb");
    assert_int_equal(fwrite(header, 1, cold->image_bytes, f), cold->image_bytes);
    fclose(f);
    warm = compile(ctx, folder)->image;
    assert_int_equal(warm->unused, 0);
    assert_int_equal(unlink(file), 0);
    assert_int_equal(rmdir(folder), 0);
}

static void without_a_folder_there_is_no_cache(void **state)
{
    assert_non_null(compile(*state, "")->image);
    assert_non_null(compile(*state, "/proc/no/such/folder")->image);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, make_ctx, drop_ctx)

int main(void)
{
    const struct CMUnitTest tests[] = {TEST(an_image_runs_wherever_it_is_mapped),
                                       TEST(a_flipped_bit_anywhere_is_noticed),
                                       TEST(another_version_is_refused),
                                       TEST(running_out_of_memory_is_clean),
                                       TEST(a_call_within_the_object_is_resolved),
                                       TEST(what_needs_a_linker_is_refused),
                                       TEST(the_cache_gives_the_same_image_and_mends_itself),
                                       TEST(a_cached_image_is_used),
                                       TEST(without_a_folder_there_is_no_cache)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
