/*
 * SHA-1 (FIPS 180-4): the checksum that ONNX defines for external data. Detects damage; it is no
 * protection.
 */
#ifndef MOTLEY_FRONTEND_SHA1_H
#define MOTLEY_FRONTEND_SHA1_H

#include <stddef.h>

enum { MOT_SHA1_HEX = 40 };

/* Writes the digest of n bytes as 40 lower-case hexadecimal digits and a NUL. */
void mot_sha1_hex(const void *bytes, size_t n, char out[MOT_SHA1_HEX + 1]);

#endif
