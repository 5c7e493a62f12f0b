/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Recordings of several processes that do the same, one per rank: which ranks differ and in what,
 * and whose memory runs out first. */
#ifndef TOOLS_RANKS_H
#define TOOLS_RANKS_H

#include "analysis/report/report.h"

#include <jansson.h>

struct rank {
    const struct report_file *file;
    const struct analysis *analysis;
    size_t place;      /* index of its file */
    char name[160];    /* "rank 3", or the part of the file's path that differs from the others */
    bool numbered;     /* the files are ranks */
    uint64_t number;   /* of the rank */
    uint64_t capacity; /* bytes of its device that the rank may use; 0: not known */
    int64_t failed_us; /* when its memory first ran out; SNAPSHOT_NO_TIME: never, or not known */
};

enum { RANK_SENTENCES = 4 };

/* The ranks. A median is that of all ranks; of an even number, the mean of the middle two. Sums are
 * taken at each rank's own peak. */
struct ranks {
    struct rank *items; /* ordered by number if the files are ranks, otherwise as they were named */
    size_t count;
    /* "rank"; "file" if some have no number or the same; "device" if there is one file. */
    const char *noun;
    uint64_t median;        /* of the peaks, bytes */
    enum analysis_by cause; /* the grouping by which the sentences name the cause */
    char sentences[RANK_SENTENCES][600];
    size_t sentence_count;
};

/* What one group has in all ranks, bytes. */
struct rank_difference {
    char label[400];
    uint64_t least, median, most;
    size_t lowest, highest; /* the first ranks that have so much */
};

/* Whether files are compared as many: the devices of one, without the host's memory; three or more;
 * two that are ranks. Else two have a comparison of their own. */
bool ranks_are_compared(const struct report_file *files, size_t count);

/* Names ranks, whose file and place are known. True where files are ranks: each has a number of its
 * own. */
bool rank_names_make(struct rank *ranks, size_t rank_count, const struct report_file *files,
                     size_t count);

/* The files outlive what is made of them. False when memory is short; then there is nothing to
 * finish. */
bool ranks_make(const struct report_file *files, size_t count, struct ranks *ranks);
void ranks_finish(struct ranks *ranks);

/* What differs, the widest first; the caller frees it. NULL when memory is short. */
struct rank_difference *ranks_differences(const struct ranks *ranks, enum analysis_by by,
                                          size_t *count);

/* Both give false when memory is short or `out` failed. */
bool ranks_text_write(FILE *out, const struct ranks *ranks, const struct report_options *options);
bool ranks_json_write(FILE *out, const struct ranks *ranks, const struct report_options *options);
/* The object that ranks_json_write() prints; NULL when memory is short. */
json_t *ranks_json(const struct ranks *ranks, unsigned by, size_t rows);

#endif
