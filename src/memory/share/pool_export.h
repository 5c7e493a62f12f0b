/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* What the shares of a pool that were made since it was last revoked have in common: a board, an
 * id, the number of the newest layout. */
#ifndef TARN_MEMORY_POOL_EXPORT_H
#define TARN_MEMORY_POOL_EXPORT_H

#include <stdint.h>

struct pool_export;

/* One share of it less; the last tells the importers that nothing is held for them any more. NULL
 * is allowed. */
void pool_export_release(struct pool_export *export);

/* The file of its board, to be sent. */
int pool_export_board(const struct pool_export *export);

/* The random name of this process among those that export (export.c). */
uint64_t process_name_get(void);

#endif
