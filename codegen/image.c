/*
 * An object that LLVM emitted becomes a flat image. Every loaded section but the unwind tables is
 * copied behind the others; all relocations are differences of addresses within the image, so they
 * are computed here, once. Linear in the object.
 */
#include "codegen/image.h"

#include <elf.h>
#include <stdio.h>
#include <string.h>

/*
 * A page: where images are mapped. The first function does not stand at its very start, as UBSan
 * looks for a signature in front of what is called.
 */
enum { MAX_ALIGNMENT = 4096, LEAD_BYTES = 64 };

typedef struct {
    MotCtx *ctx;
    const char *object;
    size_t n;
    const Elf64_Ehdr *header;
    const Elf64_Shdr *sections;
    const Elf64_Sym *symbols;
    uint32_t n_symbols;
    const char *symbol_names, *section_names;
    uint64_t *at; /* [sections]: offset in the payload, UINT64_MAX: not loaded */
    uint64_t bytes;
    char *payload;
} Layout;

/*
 * The object comes from LLVM, not from a file: what is wrong with it is our bug, but told, not
 * crashed on.
 */
static MotStatus refuse(Layout *l, const char *what, const char *detail)
{
    return mot_fail(l->ctx, MOT_ERR_INTERNAL, MOT_NOWHERE, "kernel object: %s%s%s", what,
                    detail ? " " : "", detail ? detail : "");
}

static const void *get_bytes(const Layout *l, uint64_t offset, uint64_t n)
{
    return offset <= l->n && n <= l->n - offset ? l->object + offset : NULL;
}

static MotStatus read_sections(Layout *l)
{
    const Elf64_Ehdr *h = l->header = get_bytes(l, 0, sizeof *h);
    if (!h || memcmp(h->e_ident, ELFMAG, SELFMAG) != 0 || h->e_ident[EI_CLASS] != ELFCLASS64 ||
        h->e_machine != EM_X86_64 || h->e_type != ET_REL || h->e_shentsize != sizeof(Elf64_Shdr))
        return refuse(l, "it is no relocatable x86-64 ELF file", NULL);
    l->sections = get_bytes(l, h->e_shoff, (uint64_t)h->e_shnum * sizeof(Elf64_Shdr));
    if (!l->sections || h->e_shstrndx >= h->e_shnum)
        return refuse(l, "no section table", NULL);
    l->section_names = l->object + l->sections[h->e_shstrndx].sh_offset;
    for (uint32_t i = 0; i < h->e_shnum; i++) {
        const Elf64_Shdr *s = &l->sections[i];
        if (s->sh_type != SHT_NOBITS && !get_bytes(l, s->sh_offset, s->sh_size))
            return refuse(l, "a section reaches outside of it", NULL);
        if (s->sh_type == SHT_SYMTAB) {
            l->symbols = get_bytes(l, s->sh_offset, s->sh_size);
            l->n_symbols = (uint32_t)(s->sh_size / sizeof(Elf64_Sym));
            l->symbol_names = l->object + l->sections[s->sh_link].sh_offset;
        }
    }
    return l->symbols ? MOT_OK : refuse(l, "no symbols", NULL);
}

static bool is_loaded(const Layout *l, const Elf64_Shdr *s)
{
    return s->sh_flags & SHF_ALLOC && (s->sh_type == SHT_PROGBITS || s->sh_type == SHT_NOBITS) &&
           strcmp(l->section_names + s->sh_name, ".eh_frame") != 0;
}

static MotStatus place_sections(Layout *l)
{
    l->at = mot_arena_array(&l->ctx->arena, uint64_t, l->header->e_shnum);
    l->bytes = LEAD_BYTES;
    for (uint32_t i = 0; i < l->header->e_shnum; i++) {
        const Elf64_Shdr *s = &l->sections[i];
        l->at[i] = UINT64_MAX;
        if (!is_loaded(l, s))
            continue;
        if (s->sh_flags & SHF_WRITE && s->sh_size)
            return refuse(l, "writable data in section", l->section_names + s->sh_name);
        uint64_t align = s->sh_addralign > 1 ? s->sh_addralign : 1;
        if (align > MAX_ALIGNMENT)
            return refuse(l, "alignment of section", l->section_names + s->sh_name);
        l->at[i] = (l->bytes + align - 1) / align * align;
        l->bytes = l->at[i] + s->sh_size;
    }
    return MOT_OK;
}

static void copy_sections(Layout *l)
{
    for (uint32_t i = 0; i < l->header->e_shnum; i++)
        if (l->at[i] != UINT64_MAX && l->sections[i].sh_type != SHT_NOBITS)
            memcpy(l->payload + l->at[i], l->object + l->sections[i].sh_offset,
                   l->sections[i].sh_size);
}

/* The symbol's offset in the payload. */
static MotStatus find_address(Layout *l, uint32_t symbol, uint64_t *out)
{
    if (symbol >= l->n_symbols)
        return refuse(l, "a relocation names no symbol", NULL);
    const Elf64_Sym *s = &l->symbols[symbol];
    if (s->st_shndx == SHN_UNDEF)
        return refuse(l, "undefined symbol", l->symbol_names + s->st_name);
    if (s->st_shndx >= l->header->e_shnum || l->at[s->st_shndx] == UINT64_MAX)
        return refuse(l, "symbol in a section that is not loaded:", l->symbol_names + s->st_name);
    *out = l->at[s->st_shndx] + s->st_value;
    return MOT_OK;
}

static MotStatus relocate(Layout *l, uint32_t section, const Elf64_Rela *r)
{
    uint64_t target, place = l->at[section] + r->r_offset;
    MOT_TRY(find_address(l, (uint32_t)ELF64_R_SYM(r->r_info), &target));
    int64_t distance = (int64_t)target + r->r_addend - (int64_t)place;
    size_t size = ELF64_R_TYPE(r->r_info) == R_X86_64_PC64 ? 8 : 4;
    if (r->r_offset + size > l->sections[section].sh_size)
        return refuse(l, "a relocation reaches outside of its section", NULL);
    switch (ELF64_R_TYPE(r->r_info)) {
    case R_X86_64_PC32:
    case R_X86_64_PLT32:
        if (distance != (int32_t)distance)
            return refuse(l, "a distance beyond 2 GiB", NULL);
        memcpy(l->payload + place, &(int32_t){(int32_t)distance}, sizeof(int32_t));
        return MOT_OK;
    case R_X86_64_PC64:
        memcpy(l->payload + place, &distance, sizeof distance);
        return MOT_OK;
    default:
        return refuse(l, "a relocation that depends on the address, of type",
                      mot_arena_printf(&l->ctx->arena, "%u", (unsigned)ELF64_R_TYPE(r->r_info)));
    }
}

static MotStatus relocate_sections(Layout *l)
{
    for (uint32_t i = 0; i < l->header->e_shnum; i++) {
        const Elf64_Shdr *s = &l->sections[i];
        if (s->sh_type != SHT_RELA || s->sh_info >= l->header->e_shnum ||
            l->at[s->sh_info] == UINT64_MAX)
            continue;
        const Elf64_Rela *r = (const Elf64_Rela *)(const void *)(l->object + s->sh_offset);
        for (uint64_t k = 0; k < s->sh_size / sizeof *r; k++)
            MOT_TRY(relocate(l, s->sh_info, &r[k]));
    }
    return MOT_OK;
}

static MotStatus find_entry(Layout *l, const char *name, uint32_t nest, uint32_t *out)
{
    char full[32];
    snprintf(full, sizeof full, "%s%u", name, nest);
    for (uint32_t i = 1; i < l->n_symbols; i++)
        if (strcmp(l->symbol_names + l->symbols[i].st_name, full) == 0) {
            uint64_t at;
            MOT_TRY(find_address(l, i, &at));
            *out = (uint32_t)at;
            return MOT_OK;
        }
    return refuse(l, "no function", full);
}

MotStatus mot_image_layout(MotCtx *ctx, const void *object, size_t n, MotIsa isa, uint64_t key,
                           uint32_t n_nests, MotImageBytes *out_image)
{
    Layout l = {.ctx = ctx, .object = object, .n = n};
    MOT_TRY(read_sections(&l));
    MOT_TRY(place_sections(&l));
    char *image = mot_arena_alloc(&ctx->arena, sizeof(MotImageHeader) + l.bytes);
    l.payload = image + sizeof(MotImageHeader);
    copy_sections(&l);
    MOT_TRY(relocate_sections(&l));
    MotImageHeader header = {.isa = isa, .key = key, .payload_bytes = l.bytes, .n_nests = n_nests};
    for (uint32_t i = 0; i < n_nests; i++) {
        MOT_TRY(find_entry(&l, "run", i, &header.nest[i].run));
        MOT_TRY(find_entry(&l, "tasks", i, &header.nest[i].tasks));
        MOT_TRY(find_entry(&l, "scratch", i, &header.nest[i].scratch_bytes));
    }
    memcpy(image, &header, sizeof header);
    mot_image_seal(image);
    *out_image = (MotImageBytes){image, sizeof header + l.bytes};
    return MOT_OK;
}
