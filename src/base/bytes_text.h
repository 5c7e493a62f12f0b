/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* A number of bytes as people read it: in units of 1024 and with three significant digits. */
#ifndef TARN_BASE_BYTES_TEXT_H
#define TARN_BASE_BYTES_TEXT_H

#include <stdint.h>
#include <stdio.h>

struct bytes_text {
    char text[24];
};

/* 1536 -> "1.50 KiB", 999 -> "999 B", 1000 -> "0.98 KiB". */
static inline struct bytes_text bytes_text(uint64_t bytes)
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    struct bytes_text made;
    double value = (double)bytes;
    unsigned unit = 0;
    for (; value >= 999.5 && unit + 1 < sizeof units / sizeof *units; unit++)
        value /= 1024;
    int decimals = !unit ? 0 : value < 9.995 ? 2 : value < 99.95 ? 1 : 0;
    snprintf(made.text, sizeof made.text, "%.*f %s", decimals, value, units[unit]);
    return made;
}

#endif
