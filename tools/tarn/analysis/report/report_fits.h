/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Would it have fitted? A recording on a device of another size, with PyTorch's two policies and
 * tarn. */
#ifndef TOOLS_REPORT_FITS_H
#define TOOLS_REPORT_FITS_H

#include "analysis/report/report.h"

/* What is asked. */
struct fits_question {
    uint64_t device;    /* bytes of the whole device; 0: nothing is asked */
    uint64_t outside;   /* bytes that no allocator has: contexts, libraries, NCCL */
    bool outside_given; /* else what the recording measured, if it did */
};

/* Of one allocator. */
struct fits_answer {
    enum { FITS_YES, FITS_NO, FITS_OPEN, FITS_FAILED } verdict; /* OPEN: within the interval */
    /* Bytes for the allocator with which the recording finishes: at least `least`, and with `most`
     * for certain. 0 where none was found. Both are equal where the recording has its beginning. */
    uint64_t least, most;
    bool stops, before; /* before: while what was there before the trace is placed */
    uint64_t event;     /* where it stops; not `before` */
    uint64_t size;      /* bytes of the request there */
};

struct fits_device {
    int device;
    uint64_t outside; /* bytes */
    bool measured;    /* `outside` is the recording's; else given, or not known (0) */
    bool known;
    bool late;     /* the trace begins with memory that was there before */
    uint64_t room; /* bytes for the allocator */
    struct fits_answer answers[REPORT_POLICIES];
};

/* Answers for each device of a file that has a trace, in the order of its analyses; the caller
 * frees it. NULL with a line on standard error. */
struct fits_device *fits_find(const struct report_file *file, const struct fits_question *question,
                              size_t *count);
/* Several lines, the verdict first. */
void fits_print(FILE *out, const struct report_file *file, const struct fits_question *question,
                const struct fits_device *devices, size_t count);
/* The same for programs, an array. False when memory is short. */
bool fits_print_json(FILE *out, const struct fits_question *question,
                     const struct fits_device *devices, size_t count);

/* What a device has, but no allocator on it, as the recording measured it. False where it did
 * not. */
bool fits_outside(const struct snapshot *snapshot, int device, uint64_t *outside);
/* What may be needed beyond a replay's figure, bytes: a replay places what was there before the
 * trace anew, and nobody knows which of the holes between it a program could have used. */
uint64_t fits_unsure(const struct analysis *analysis);

#endif
