/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* The contents of a pool's live blocks, in host memory while the pool is suspended. Of the thread that changes the pool's state, which
 * bars known captures; no lock held. */
#ifndef TARN_MEMORY_CONTENTS_H
#define TARN_MEMORY_CONTENTS_H

#include "device/device.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct kept;
struct staging;

struct contents {
    struct kept *kept;                                     /* one per stretch of addresses */
    enum { COPIES_ENDED, COPIES_OUT, COPIES_BACK } copies; /* begun, and not known to have ended */
    struct staging *staging; /* what these may still use, or the driver did not take; or NULL */
};

/* How many bytes of contents are staged, and in chunks of how many. Constant, except in tests. */
extern struct contents_staging {
    size_t least, chunk;
} contents_staging;

/* Host memory for a stretch of addresses. */
tarn_status contents_add(struct contents *contents, uintptr_t start, size_t size);
/* Copies all of it, out or back, and waits for it. Where not even the driver can say that the copies have ended, `copies` remembers that:
 * until it is known, both sides stay. */
tarn_status contents_copy(struct contents *contents, struct device *device, bool back);
/* Waits for copies of an earlier change that are not known to have ended. Of those out of the memory, which is still there then, nothing is
 * wanted any more. */
tarn_status contents_settle(struct contents *contents, struct device *device);
/* For code that cannot wait: whether no copies are under way. Asks the driver where no known capture forbids it. */
bool contents_are_settled(struct contents *contents, struct device *device);
/* Frees the host memory. No copies are under way. */
void contents_drop(struct contents *contents);
/* The pool's end. */
void contents_end(struct contents *contents, struct device *device);
size_t contents_bytes(const struct contents *contents);

#endif
