/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* The contents of a pool's live blocks, in host memory while the pool is suspended. Used only by
 * the thread that changes the pool's state, which bars known captures; no lock held. */
#ifndef TARN_MEMORY_CONTENTS_H
#define TARN_MEMORY_CONTENTS_H

#include "device/device.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct kept;
struct staging;

struct contents {
    struct kept *kept; /* one per stretch of addresses */
    /* In progress, or not known to have ended */
    enum { COPIES_ENDED, COPIES_OUT, COPIES_BACK } copies;
    /* In use by copies, or refused by the driver; or NULL */
    struct staging *staging;
};

/* From how many bytes on contents are staged, and the size of a chunk. Constant, except in
 * tests. */
extern struct contents_staging {
    size_t least, chunk;
} contents_staging;

/* Host memory for a stretch of addresses. */
tarn_status contents_add(struct contents *contents, uintptr_t start, size_t size);
/* Drops the contents of a free range of addresses, before it leaves the pool: others may have it
 * from then on. No copies are in progress. Fails with TARN_ERROR_OUT_OF_HOST_MEMORY, and can be
 * called again. */
tarn_status contents_leave_out(struct contents *contents, uintptr_t start, size_t size);
/* Copies all contents, out or back, and waits. If the driver cannot tell whether the copies have
 * ended, `copies` remembers that, and both sides stay until it is known. */
tarn_status contents_copy(struct contents *contents, struct device *device, bool back);
/* Waits for copies of an earlier change that are not known to have ended. The results of copies out
 * are not needed any more, because the memory still exists. */
tarn_status contents_settle(struct contents *contents, struct device *device);
/* For code that cannot wait: whether no copies are in progress. Asks the driver unless a known
 * capture forbids it. */
bool contents_are_settled(struct contents *contents, struct device *device);
/* Frees the host memory. No copies are in progress. */
void contents_drop(struct contents *contents);
/* The pool's end. */
void contents_end(struct contents *contents, struct device *device);
size_t contents_bytes(const struct contents *contents);

#endif
