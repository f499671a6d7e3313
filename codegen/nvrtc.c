/*
 * NVRTC by dlopen. It is never unloaded, as it keeps memory until the process ends. The prototypes
 * are those of its documentation; results other than 0 are errors.
 */
#include "codegen/nvrtc.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

typedef struct Program *Handle; /* nvrtcProgram */

/* X(result, name, parameters) */
#define NVRTC_FUNCTIONS(X)                                                                         \
    X(int, nvrtcVersion, (int *major, int *minor))                                                 \
    X(const char *, nvrtcGetErrorString, (int result))                                             \
    X(int, nvrtcGetNumSupportedArchs, (int *n))                                                    \
    X(int, nvrtcGetSupportedArchs, (int *archs))                                                   \
    X(int, nvrtcCreateProgram,                                                                     \
      (Handle * program, const char *text, const char *name, int n_headers,                        \
       const char *const *headers, const char *const *names))                                      \
    X(int, nvrtcDestroyProgram, (Handle * program))                                                \
    X(int, nvrtcCompileProgram, (Handle program, int n_options, const char *const *options))       \
    X(int, nvrtcGetCUBINSize, (Handle program, size_t *bytes))                                     \
    X(int, nvrtcGetCUBIN, (Handle program, char *cubin))                                           \
    X(int, nvrtcGetProgramLogSize, (Handle program, size_t *bytes))                                \
    X(int, nvrtcGetProgramLog, (Handle program, char *log))

struct MotNvrtc {
    void *library;
    const char *version;
    const int *archs;
    int n_archs;
#define X(result, name, parameters) result(*name) parameters;
    NVRTC_FUNCTIONS(X)
#undef X
};

/* ---- Loading ---- */

/* Folders in the order of the header's comment; "" is the dynamic linker's. */
static uint32_t list_folders(MotCtx *ctx, const char *out_folders[4])
{
    const char *cuda = getenv("CUDA_HOME"), *data = getenv("MOTLEY_DATA");
    uint32_t n = 0;
    if (cuda && *cuda)
        out_folders[n++] = mot_arena_printf(&ctx->arena, "%s/lib64/", cuda);
    out_folders[n++] = "";
    out_folders[n++] = "/usr/local/cuda/lib64/";
    if (data && *data)
        out_folders[n++] = mot_arena_printf(&ctx->arena, "%s/nvrtc/", data);
    return n;
}

static void *find_library(MotCtx *ctx)
{
    static const char *const names[] = {"libnvrtc.so.13", "libnvrtc.so.12"};
    const char *folders[4];
    uint32_t n = list_folders(ctx, folders);
    for (size_t name = 0; name < sizeof names / sizeof *names; name++)
        for (uint32_t i = 0; i < n; i++) {
            void *library = dlopen(mot_arena_printf(&ctx->arena, "%s%s", folders[i], names[name]),
                                   RTLD_NOW | RTLD_LOCAL);
            if (library)
                return library;
        }
    return NULL;
}

static MotStatus find_functions(MotCtx *ctx, MotNvrtc *n)
{
    const char *missing = NULL;
#define X(result, name, parameters)                                                                \
    *(void **)&n->name = dlsym(n->library, #name);                                                 \
    if (!n->name)                                                                                  \
        missing = #name;
    NVRTC_FUNCTIONS(X)
#undef X
    return missing ? mot_fail(ctx, MOT_ERR_UNSUPPORTED, MOT_NOWHERE, "NVRTC has no function %s",
                              missing)
                   : MOT_OK;
}

/*
 * NVRTC opens its built-in functions by name when it first compiles, and finds them beside itself
 * by its own RUNPATH. Where dlopen is intercepted (ASan) that path is not the caller's; a library
 * that is loaded already is found by its name alone.
 */
static void load_builtins(MotCtx *ctx, const MotNvrtc *n, int major, int minor)
{
    Dl_info info;
    if (!dladdr(*(void *const *)&n->nvrtcVersion, &info) || !strrchr(info.dli_fname, '/'))
        return;
    int folder = (int)(strrchr(info.dli_fname, '/') - info.dli_fname);
    dlopen(mot_arena_printf(&ctx->arena, "%.*s/libnvrtc-builtins.so.%d.%d", folder, info.dli_fname,
                            major, minor),
           RTLD_NOW | RTLD_LOCAL);
}

static MotStatus ask_library(MotCtx *ctx, MotNvrtc *n)
{
    int major, minor;
    if (n->nvrtcVersion(&major, &minor) || n->nvrtcGetNumSupportedArchs(&n->n_archs))
        return mot_fail(ctx, MOT_ERR_UNSUPPORTED, MOT_NOWHERE, "NVRTC does not tell its version");
    load_builtins(ctx, n, major, minor);
    int *archs = mot_arena_array(&ctx->arena, int, n->n_archs);
    if (n->nvrtcGetSupportedArchs(archs))
        return mot_fail(ctx, MOT_ERR_UNSUPPORTED, MOT_NOWHERE,
                        "NVRTC does not tell what it compiles for");
    n->archs = archs;
    n->version = mot_arena_printf(&ctx->arena, "%d.%d", major, minor);
    return MOT_OK;
}

MotStatus mot_nvrtc_open(MotCtx *ctx, MotNvrtc **out_nvrtc)
{
    MotNvrtc *n = mot_arena_new(&ctx->arena, MotNvrtc);
    n->library = find_library(ctx);
    if (!n->library) {
        MotStatus status = mot_fail(ctx, MOT_ERR_UNSUPPORTED, MOT_NOWHERE,
                                    "there is no libnvrtc.so.13 or libnvrtc.so.12");
        mot_hint(ctx, "install CUDA's NVRTC and set CUDA_HOME if it lies in an unusual place");
        return status;
    }
    MOT_TRY(find_functions(ctx, n));
    MOT_TRY(ask_library(ctx, n));
    *out_nvrtc = n;
    return MOT_OK;
}

bool mot_nvrtc_supports(const MotNvrtc *nvrtc, int arch)
{
    for (int i = 0; i < nvrtc->n_archs; i++)
        if (nvrtc->archs[i] == arch)
            return true;
    return false;
}

const char *mot_nvrtc_version(const MotNvrtc *nvrtc)
{
    return nvrtc->version;
}

/* ---- Compiling ---- */

static MotStatus fail(MotCtx *ctx, const MotNvrtc *n, Handle program, int arch, int result)
{
    size_t bytes = 0;
    mot_fail(ctx, MOT_ERR_INTERNAL, MOT_NOWHERE, "NVRTC %s, sm_%d: %s", n->version, arch,
             n->nvrtcGetErrorString(result));
    if (n->nvrtcGetProgramLogSize(program, &bytes) || bytes < 2)
        return ctx->status;
    char *log = mot_arena_array(&ctx->arena, char, bytes + 1);
    if (n->nvrtcGetProgramLog(program, log) == 0)
        mot_note(ctx, "%s", log);
    return ctx->status;
}

static MotStatus compile(MotCtx *ctx, const MotNvrtc *n, Handle program, int arch,
                         const void **out_cubin, size_t *out_bytes)
{
    const char *option = mot_arena_printf(&ctx->arena, "--gpu-architecture=sm_%d", arch);
    int result = n->nvrtcCompileProgram(program, 1, &option);
    if (!result)
        result = n->nvrtcGetCUBINSize(program, out_bytes);
    char *cubin = result ? NULL : mot_arena_array(&ctx->arena, char, *out_bytes);
    if (!result)
        result = n->nvrtcGetCUBIN(program, cubin);
    if (result)
        return fail(ctx, n, program, arch, result);
    *out_cubin = cubin;
    return MOT_OK;
}

MotStatus mot_nvrtc_compile(MotCtx *ctx, const MotNvrtc *nvrtc, const char *text, int arch,
                            const void **out_cubin, size_t *out_bytes)
{
    Handle program = NULL;
    int result = nvrtc->nvrtcCreateProgram(&program, text, "kernel.cu", 0, NULL, NULL);
    if (result)
        return mot_fail(ctx, MOT_ERR_INTERNAL, MOT_NOWHERE, "NVRTC: %s",
                        nvrtc->nvrtcGetErrorString(result));
    MotStatus status = compile(ctx, nvrtc, program, arch, out_cubin, out_bytes);
    nvrtc->nvrtcDestroyProgram(&program);
    return status;
}
