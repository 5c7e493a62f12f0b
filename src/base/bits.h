/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* A table of bits, in words of 64. */
#ifndef TARN_BASE_BITS_H
#define TARN_BASE_BITS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

static inline size_t bits_bytes(size_t count)
{
    return (count + 63) / 64 * sizeof(uint64_t);
}

/* Sets or clears the bits [from, end). */
static inline void bits_mark(uint64_t *words, size_t from, size_t end, bool value)
{
    for (size_t bit = from; bit < end; bit++) {
        uint64_t mask = UINT64_C(1) << (bit % 64);
        if (value)
            words[bit / 64] |= mask;
        else
            words[bit / 64] &= ~mask;
    }
}

/* The first of the bits [from, count) that is `value`; `count` if there is none. */
static inline size_t bits_next(const uint64_t *words, size_t count, size_t from, bool value)
{
    while (from < count) {
        uint64_t word = words[from / 64] ^ (value ? 0 : ~UINT64_C(0));
        word &= ~UINT64_C(0) << (from % 64);
        if (word) {
            size_t found = from / 64 * 64 + (size_t)__builtin_ctzll(word);
            return found < count ? found : count;
        }
        from = (from / 64 + 1) * 64;
    }
    return count;
}

#endif
