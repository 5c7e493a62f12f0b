/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* What other calls on memory ask about imports. */
#ifndef TARN_MEMORY_IMPORT_H
#define TARN_MEMORY_IMPORT_H

#include <stdbool.h>
#include <stdint.h>
#include <tarn/memory.h>

/* Whether an address lies in imported memory; a load where nothing is imported. */
bool import_holds(uintptr_t address);
/* What a call gives that was meant for one of tarn's own blocks. */
tarn_status import_refuse(uintptr_t address) __attribute__((cold));
/* tarn_pointer_info_get() for an imported block; false where the pointer lies in none. */
bool import_info(const void *pointer, tarn_block_info *info);

#endif
