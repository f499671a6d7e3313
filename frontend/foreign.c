/*
 * Files that people take for ONNX models: recognised by their first bytes, so that the error says
 * what the file is. None of the signatures can start a ModelProto (each breaks a tag or a wire
 * type), so a real model is never refused here.
 */
#include "frontend/wire.h"

#include <string.h>

#define SIGNATURE(at, bytes, what, hint) {at, bytes, sizeof(bytes) - 1, what, hint}

static const char export_it[] = "export the model to ONNX first";
static const char save_binary[] = "save it in the binary form";
static const char download_it[] = "fetch the file itself: git lfs pull";
static const char check_address[] =
    "the server answered with a page; check the address and the login";
static const char unpack_it[] = "unpack it and give the .onnx file inside";

/* clang-format off */
static const MotForeign signatures[] = {
    SIGNATURE(0, "version https://git-lfs", "a Git LFS pointer, not the model",     download_it),
    SIGNATURE(0, "<!DOCTYPE",               "an HTML page",                         check_address),
    SIGNATURE(0, "<!doctype",               "an HTML page",                         check_address),
    SIGNATURE(0, "<html",                   "an HTML page",                         check_address),
    SIGNATURE(0, "<HTML",                   "an HTML page",                         check_address),
    SIGNATURE(0, "<?xml",                   "an XML file",                          export_it),
    SIGNATURE(0, "ir_version",              "an ONNX model in protobuf text form",  save_binary),
    SIGNATURE(0, "graph {",                 "an ONNX model in protobuf text form",  save_binary),
    SIGNATURE(0, "opset_import",            "an ONNX model in protobuf text form",  save_binary),
    SIGNATURE(0, "<\n",                     "an ONNX model in textual syntax",      save_binary),
    SIGNATURE(0, "{",                       "a JSON file",                          save_binary),
    SIGNATURE(0, "PK\003\004",              "a zip archive, as torch.save writes",  export_it),
    SIGNATURE(0, "\x80\x02",                "a Python pickle",                      export_it),
    SIGNATURE(0, "\x80\x03",                "a Python pickle",                      export_it),
    SIGNATURE(0, "\x80\x04",                "a Python pickle",                      export_it),
    SIGNATURE(0, "\x80\x05",                "a Python pickle",                      export_it),
    SIGNATURE(0, "\x1f\x8b",                "a gzip archive",                       unpack_it),
    SIGNATURE(0, "\xfd" "7zXZ",             "an xz archive",                        unpack_it),
    SIGNATURE(0, "\x89HDF",                 "an HDF5 file, as Keras writes",        export_it),
    SIGNATURE(0, "\x93NUMPY",               "a NumPy array",                        export_it),
    SIGNATURE(0, "GGUF",                    "a GGUF file",                          export_it),
    SIGNATURE(0, "\x7f" "ELF",              "an ELF object",                        export_it),
    SIGNATURE(4, "TFL3",                    "a TensorFlow Lite model",              export_it),
    SIGNATURE(4, "ORTM",                    "a model in ONNX Runtime's own format", "give the .onnx file that it was made from"),
    SIGNATURE(257, "ustar",                 "a tar archive",                        unpack_it),
};
/* clang-format on */

static bool is_one_of(uint8_t byte, const char *set)
{
    return byte && strchr(set, byte);
}

/* An 8-byte little-endian header length that fits the file, then JSON. */
static bool is_safetensors(const uint8_t *bytes, size_t n)
{
    if (n < 10 || bytes[8] != '{' || !is_one_of(bytes[9], "\"} "))
        return false;
    uint64_t header_bytes;
    memcpy(&header_bytes, bytes, sizeof header_bytes);
    return header_bytes <= n - 8;
}

const MotForeign *mot_foreign_find(const uint8_t *bytes, size_t n)
{
    static const MotForeign safetensors = {0, "", 0, "a safetensors file: weights without a graph",
                                           "give the .onnx model that the weights belong to"};
    if (is_safetensors(bytes, n))
        return &safetensors;
    size_t blank = 0;
    while (blank < n && blank < 64 && is_one_of(bytes[blank], " \t\r\n"))
        blank++;
    for (size_t i = 0; i < sizeof signatures / sizeof signatures[0]; i++) {
        const MotForeign *s = &signatures[i];
        size_t at = s->at ? s->at : blank;
        if (n >= at && n - at >= s->n && memcmp(bytes + at, s->bytes, s->n) == 0)
            return s;
    }
    return NULL;
}
