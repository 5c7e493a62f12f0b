/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* The smallest program that uses tarn: it takes a block of the current device's memory and gives it
 * back. */
#include <stdio.h>
#include <tarn/tarn.h>

int main(void)
{
    void *block = tarn_malloc((size_t)1 << 20);
    if (!block) {
        fprintf(stderr, "no memory\n");
        return 1;
    }
    if (tarn_free(block) != TARN_OK) {
        fprintf(stderr, "the block was not taken back\n");
        return 1;
    }
    puts("1 MiB taken and given back");
    return 0;
}
