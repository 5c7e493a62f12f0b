/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Questions of other memory calls about imports. */
#ifndef TARN_MEMORY_IMPORT_H
#define TARN_MEMORY_IMPORT_H

#include <stdbool.h>
#include <stdint.h>
#include <tarn/memory.h>

/* Whether an address is in imported memory; one load if nothing is imported. */
bool import_holds(uintptr_t address);
/* The status of a call that needs a block of tarn, for an imported pointer. */
tarn_status import_refuse(uintptr_t address) __attribute__((cold));
/* tarn_pointer_info_get() for an imported block; false if the pointer is in none. */
bool import_info(const void *pointer, tarn_block_info *info);

#endif
