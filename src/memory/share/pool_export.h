/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* What all shares of a pool since its last revocation have in common: a board, an id, the number of
 * the newest layout. */
#ifndef TARN_MEMORY_POOL_EXPORT_H
#define TARN_MEMORY_POOL_EXPORT_H

#include <stddef.h>
#include <stdint.h>
#include <tarn/status.h>

struct pool_export;

/* Drops one share of the export. The last one tells the importers that nothing is kept for them any
 * more. NULL is allowed. */
void pool_export_release(struct pool_export *export);

/* The file of its board, to send. */
int pool_export_board(const struct pool_export *export);

/* How many processes import the pool now. Makes system calls, with no lock held. */
tarn_status pool_export_importers(const struct pool_export *export, size_t *count);

/* This process's random name among exporters (export.c). */
uint64_t process_name_get(void);

#endif
