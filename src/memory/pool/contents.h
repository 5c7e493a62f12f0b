/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* The contents of a pool's live blocks, in host memory while the pool is suspended; of a kept pool
 * also while it is saved to a file, or loaded. One thread at a time uses them; it bars known
 * captures. No lock held. */
#ifndef TARN_MEMORY_CONTENTS_H
#define TARN_MEMORY_CONTENTS_H

#include "device/device.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct saved;
struct staging;

struct contents {
    struct saved *saved; /* one per range of addresses */
    /* in progress, or not known to have ended */
    enum { COPIES_ENDED, COPIES_OUT, COPIES_BACK } copies;
    /* NULL, or stages that copies use or that the driver refused to take back */
    struct staging *staging;
};

/* Contents from `least` bytes on are staged, in chunks. Constant, except in tests. */
extern struct contents_staging {
    size_t least, chunk;
} contents_staging;

/* Adds host memory for the contents of a range of addresses. */
tarn_status contents_add(struct contents *contents, uintptr_t start, size_t size);
/* The same with memory of the caller, `copy`, which lasts until the contents are dropped. */
tarn_status contents_place(struct contents *contents, uintptr_t start, size_t size, void *copy);
/* Drops the contents of a free range of addresses before it leaves the pool, since other memory may
 * come there. No copies are in progress. TARN_ERROR_OUT_OF_HOST_MEMORY: call it again later. */
tarn_status contents_leave_out(struct contents *contents, uintptr_t start, size_t size);
/* Copies all contents, out or back, and waits. If the driver cannot tell whether the copies have
 * ended, `copies` says so, and both sides stay until it is known. */
tarn_status contents_copy(struct contents *contents, struct device *device, bool back);
/* Waits for copies of an earlier change that may be in progress. Their results are not needed any
 * more, because the memory still exists. */
tarn_status contents_settle(struct contents *contents, struct device *device);
/* Whether no copies are in progress, for code that cannot wait. Asks the driver, unless a known
 * capture forbids it. */
bool contents_are_settled(struct contents *contents, struct device *device);
/* Frees the host memory. No copies are in progress. */
void contents_drop(struct contents *contents);
/* Frees everything, at the pool's end. */
void contents_end(struct contents *contents, struct device *device);
size_t contents_bytes(const struct contents *contents);

#endif
