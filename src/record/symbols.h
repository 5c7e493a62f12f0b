/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* The names of return addresses of this process: function, file and line where debug information is
 * there and elfutils' libdw is installed; else what the dynamic linker knows. */
#ifndef TARN_RECORD_SYMBOLS_H
#define TARN_RECORD_SYMBOLS_H

#include <stdbool.h>
#include <stdint.h>

struct symbol {
    char name[256], file[256];
    int line;
    bool own; /* of the library itself */
};

/* Opened for one snapshot; NULL where the host has no memory. */
struct symbols;
struct symbols *symbols_open(void);
void symbols_find(struct symbols *symbols, uint64_t address, struct symbol *symbol);
void symbols_close(struct symbols *symbols);

#endif
