/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Computes the bytes that an array's elements need. The driver takes a little more, because it lays
 * arrays out in tiles, and does not report how much. HIP's formats have CUDA's numbers. */
#ifndef TARN_RUN_ARRAY_SIZE_H
#define TARN_RUN_ARRAY_SIZE_H

#include <stddef.h>

/* Bits per element of `channels` channels. An unknown format counts as one byte per channel. */
static inline unsigned array_bits(unsigned format, unsigned channels)
{
    /* 1, 2 and 4 channels of 8 bits, then of 16 */
    static const unsigned char normalized[] = {8, 16, 32, 16, 32, 64};
    if (format >= 0xc0 && format <= 0xcb)
        return normalized[(format - 0xc0) % 6];
    switch (format) {
    case 0x02: /* unsigned and signed 16 bits, half */
    case 0x09:
    case 0x10:
        return 16 * channels;
    case 0x03: /* unsigned and signed 32 bits, float, 10-10-10-2 */
    case 0x0a:
    case 0x20:
        return 32 * channels;
    case 0x50:
        return 32;
    case 0x91: /* BC1 and BC4: 8 bytes per 16 elements */
    case 0x92:
    case 0x97:
    case 0x98:
        return 4;
    case 0x93: /* other block-compressed: 16 bytes per 16 elements */
    case 0x94:
    case 0x95:
    case 0x96:
    case 0x99:
    case 0x9a:
    case 0x9b:
    case 0x9c:
    case 0x9d:
    case 0x9e:
        return 8;
    default:
        return 8 * channels;
    }
}

static inline size_t array_some(size_t extent)
{
    return extent ? extent : 1;
}

#endif
