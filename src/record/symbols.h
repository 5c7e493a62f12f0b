/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Names of return addresses of this process: function, file and line if there is debug information,
 * elfutils' libdw is installed, and the thread has 256 KiB of its stack left; otherwise what the
 * dynamic linker knows. */
#ifndef TARN_RECORD_SYMBOLS_H
#define TARN_RECORD_SYMBOLS_H

#include <stdbool.h>
#include <stdint.h>

struct symbol {
    char name[256], file[256];
    int line;
    bool own; /* it is in tarn itself */
};

/* Opened for one snapshot. NULL: no host memory. */
struct symbols;
struct symbols *symbols_open(void);
void symbols_find(struct symbols *symbols, uint64_t address, struct symbol *symbol);
void symbols_close(struct symbols *symbols);

/* Where the object around an address begins, as dladdr() has it; NULL if there is none. dladdr()
 * also looks for a name, for which it reads all symbols of the object: 2.6 ms for 400,000. */
const void *symbol_base(const void *address);

/* Whether an address is in tarn itself, as in `own`. Needs no symbols. */
bool symbol_is_own(uint64_t address);

#endif
