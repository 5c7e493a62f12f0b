/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Would it have fitted? Runs a recording on a device of another size, with PyTorch's two policies
 * and tarn. */
#ifndef TOOLS_REPORT_FITS_H
#define TOOLS_REPORT_FITS_H

#include "analysis/report/report.h"

/* What is asked. */
struct fits_question {
    uint64_t device;  /* bytes of the whole device; 0: no question was asked */
    uint64_t outside; /* bytes that the allocator does not have: contexts, libraries, NCCL */
    /* the user gave `outside`; if not, it is what the recording measured, if anything */
    bool outside_given;
};

/* The answer for one allocator. */
struct fits_answer {
    /* OPEN: the room lies between `least` and `most`. PAST: it gets past the error that the
     * recording ends with; what follows was not recorded */
    enum { FITS_YES, FITS_NO, FITS_OPEN, FITS_PAST, FITS_FAILED } verdict;
    /* Bytes for the allocator: below `least` the recording does not finish, with `most` it
     * certainly does. 0: none was found. Equal if the recording shows its beginning. */
    uint64_t least, most;
    bool stops, before; /* before: it stops while blocks from before the trace are placed */
    uint64_t event;     /* the event at which it stops, unless `before` */
    uint64_t size;      /* bytes of the request that fails */
};

struct fits_device {
    int device;
    uint64_t outside; /* bytes */
    /* `outside` was measured by the recording; otherwise it was given, or is not known (0) */
    bool measured;
    bool known;
    bool late;     /* there were blocks before the trace began */
    uint64_t room; /* bytes that are left for the allocator */
    /* the event of the error that the recording ends with; ANALYSIS_NEVER: it ends otherwise */
    uint32_t ended_by;
    struct fits_answer answers[REPORT_POLICIES];
};

/* Answers for each device of a file that has a trace, in the order of the analyses. The caller
 * frees it. NULL after a line on standard error. */
struct fits_device *fits_find(const struct report_file *file, const struct fits_question *question,
                              size_t *count);
/* Prints several lines, the verdict first. */
void fits_print(FILE *out, const struct report_file *file, const struct fits_question *question,
                const struct fits_device *devices, size_t count);
/* Prints the same as a JSON array. False if memory is short. */
bool fits_print_json(FILE *out, const struct fits_question *question,
                     const struct fits_device *devices, size_t count);

/* The bytes of a device that are in use and that no allocator has, as the recording measured them.
 * False if it did not. */
bool fits_outside(const struct snapshot *snapshot, int device, uint64_t *outside);
/* Bytes that may be needed beyond a replay's result. A replay chooses
 * new places for blocks from before the trace, so the holes between them differ from the program's.
 */
uint64_t fits_unsure(const struct analysis *analysis);

#endif
