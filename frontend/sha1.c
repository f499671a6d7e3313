/* One block at a time over the message; the tail is padded in a buffer of two blocks. */
#include "frontend/sha1.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>

enum { BLOCK = 64 };

static uint32_t rotate(uint32_t x, int n)
{
    return x << n | x >> (32 - n);
}

/* The function and constant of round i, section 4.1.1. */
static uint32_t mix(int i, uint32_t b, uint32_t c, uint32_t d)
{
    if (i < 20)
        return ((b & c) | (~b & d)) + 0x5a827999;
    if (i < 40)
        return (b ^ c ^ d) + 0x6ed9eba1;
    if (i < 60)
        return ((b & c) | (b & d) | (c & d)) + 0x8f1bbcdc;
    return (b ^ c ^ d) + 0xca62c1d6;
}

static void add_block(uint32_t h[5], const uint8_t *p)
{
    uint32_t w[80];
    for (size_t i = 0; i < 16; i++)
        w[i] = (uint32_t)p[4 * i] << 24 | (uint32_t)p[4 * i + 1] << 16 |
               (uint32_t)p[4 * i + 2] << 8 | p[4 * i + 3];
    for (int i = 16; i < 80; i++)
        w[i] = rotate(w[i - 3] ^ w[i - 8] ^ w[i - 14] ^ w[i - 16], 1);
    uint32_t a = h[0], b = h[1], c = h[2], d = h[3], e = h[4];
    for (int i = 0; i < 80; i++) {
        uint32_t next = rotate(a, 5) + mix(i, b, c, d) + e + w[i];
        e = d;
        d = c;
        c = rotate(b, 30);
        b = a;
        a = next;
    }
    h[0] += a;
    h[1] += b;
    h[2] += c;
    h[3] += d;
    h[4] += e;
}

void mot_sha1_hex(const void *bytes, size_t n, char out[MOT_SHA1_HEX + 1])
{
    uint32_t h[5] = {0x67452301, 0xefcdab89, 0x98badcfe, 0x10325476, 0xc3d2e1f0};
    const uint8_t *p = bytes;
    size_t whole = n / BLOCK * BLOCK;
    for (size_t i = 0; i < whole; i += BLOCK)
        add_block(h, p + i);
    uint8_t tail[2 * BLOCK] = {0};
    size_t left = n - whole, padded = left < BLOCK - 8 ? BLOCK : 2 * BLOCK;
    if (left)
        memcpy(tail, p + whole, left);
    tail[left] = 0x80;
    for (size_t i = 0; i < 8; i++)
        tail[padded - 1 - i] = (uint8_t)((uint64_t)n * 8 >> (8 * i));
    for (size_t i = 0; i < padded; i += BLOCK)
        add_block(h, tail + i);
    for (size_t i = 0; i < 5; i++)
        snprintf(out + 8 * i, 9, "%08x", h[i]);
}
