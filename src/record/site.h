/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Call sites: where the program called a public function. */
#ifndef TARN_RECORD_SITE_H
#define TARN_RECORD_SITE_H

#include <stdbool.h>

#define SITE_FRAMES 8

/* Return addresses, that of the public function first. */
struct site {
    void *frames[SITE_FRAMES];
    unsigned count; /* 0: not known */
};

/* The site that the thread has taken last. */
extern _Thread_local struct site site_here;

/* Takes the calling thread's site: `caller` is the return address of the public function. Only with
 * `deep` the frames above it too, which takes about 1 us. No lock held, as the unwinder may wait
 * for the loader. */
void site_take(void *caller, bool deep);

#endif
