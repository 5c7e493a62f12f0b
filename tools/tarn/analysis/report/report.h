/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* What `tarn report` and `tarn diff` share: files and their analyses, and the ways to show them. */
#ifndef TOOLS_REPORT_H
#define TOOLS_REPORT_H

#include "analysis/advice.h"
#include "analysis/category.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

/* The reader's own words on call sites and categories. */
struct report_rules {
    struct analysis_folding folding;
    const struct category_rule *categories;
    size_t category_count;
    size_t most_events; /* of a device; what is beyond is left out (thin.h). 0: no limit */
};

/* A file that was read, and the analysis of each of its devices that has anything. */
struct report_file {
    const char *path;
    const char *name; /* on a page: the last part of the path, or report_name() */
    const struct report_rules *rules;
    struct snapshot snapshot;
    struct analysis *analyses;
    size_t count;
    struct replay_file *what_if; /* what report_what_if_run() gave; NULL: it was not run */
    /* "has several streams": why it searched no smallest devices; NULL: it did, or nobody asked. */
    const char *not_searched;
    /* The advice needs the smallest devices, and they were not searched because that takes long. */
    bool least_left_out;
};

/* Reads a file ("-": standard input) and analyses the device that is asked for, or all if it is
 * negative. The rules outlive the file. False with a line on standard error that begins with "tarn
 * COMMAND: "; then there is nothing to finish. */
bool report_file_open(const char *command, const char *path, int device,
                      const struct report_rules *rules, struct report_file *file);
void report_file_finish(struct report_file *file);

/* What PyTorch's two policies and tarn would take for the same trace, in this order. */
enum { REPORT_POLICIES = 3 };
struct report_what_if {
    bool ran; /* the replay itself went well */
    /* The replay ran to its end, with the requests that failed in the recording; if not, the
     * figures mean nothing. */
    bool fits;
    uint64_t tried,
        /* Requests that failed in the recording: on a device of that size; those that failed
         * here too. */
        denied;
    uint64_t reserved;  /* bytes, at most */
    uint64_t least;     /* bytes: the smallest device; 0: not searched */
    uint64_t driver_ns; /* the driver's, by cost table C */
};
/* Replays a file that has a trace, in another process; report_file_finish() frees what came of it.
 * For a page, the smallest devices are searched where that takes a moment, or with `least`; for
 * text and JSON only what the advice asks for is replayed, where that takes a moment. */
void report_what_if_run(struct report_file *file, bool page, bool least);
void report_what_if_finish(struct report_file *file);
/* What was replayed of one device. `requested` receives the most bytes that the program requested
 * at one time. False: nothing was replayed. */
bool report_what_if_get(const struct report_file *file, int device, uint64_t *requested,
                        struct report_what_if rows[REPORT_POLICIES]);

/* Writes to `text`, and returns, the sentence about segments that name no device. Empty if there
 * are none, or if they were given to another device. */
const char *report_no_device(const struct analysis *analysis, char *text, size_t size);

/* The advice on a device of a file, with what was replayed. False when memory is short. */
bool report_advice(const struct report_file *file, const struct analysis *analysis,
                   struct advice_list *list);

/* Which moment is looked at. */
struct report_moment {
    enum {
        REPORT_AT_PEAK,
        REPORT_AT_PEAK_RESERVED,
        REPORT_AT_END,
        REPORT_AT_OOM, /* the last out-of-memory error; the end where there was none */
        REPORT_AT_TIME,
        REPORT_AT_EVENT
    } kind;
    uint32_t event; /* of REPORT_AT_EVENT: so many have happened */
    uint64_t time;  /* of REPORT_AT_TIME: ns since the first event */
};

/* "peak", "peak-reserved", "end", "oom", a time as "1.5s" or "250ms", or a number of events. */
bool report_moment_parse(const char *text, struct report_moment *moment);
/* The moment of an analysis; a number beyond its last event is its end. */
uint32_t report_moment_of(const struct analysis *analysis, const struct report_moment *moment);
/* The last moment that was not after a time, in ns. In a trace without times, each event takes
 * WORKLOAD_EVENT_TIME. */
uint32_t report_moment_at(const struct analysis *analysis, uint64_t time);
/* "the peak", "the end", ... */
const char *report_moment_name(const struct report_moment *moment);

struct report_options {
    struct report_moment moment;
    unsigned by; /* which tables: bits, 1 << enum analysis_by; 0: all that say something */
    size_t rows; /* of a table */
    int width;   /* columns of the terminal */
    bool unicode;
};

/* All give false when memory is short or `out` failed. */
bool report_text_write(FILE *out, const struct report_file *file,
                       const struct report_options *options);
bool report_json_write(FILE *out, const struct report_file *file,
                       const struct report_options *options);
/* Whether the build found what draws the page. */
bool report_page_exists(void);
/* Whether the build found what compiles the analysis for the page. Then a page reads files that are
 * dropped on it. */
bool report_viewer_exists(void);
/* Writes a page. With two files it compares them, with more it shows them as ranks, and without a
 * file it waits for files. `made_by` is the command line. */
bool report_page_write(FILE *out, const struct report_file *files, size_t count,
                       const char *made_by);

bool report_diff_text(FILE *out, const struct report_file *before, const struct report_file *after,
                      const struct report_options *options);
/* The sentence that both begin with, of one device; the page has the same. */
bool report_diff_say(const struct analysis *before, const struct analysis *after,
                     const struct report_options *options, char *text, size_t size);
bool report_diff_json(FILE *out, const struct report_file *before, const struct report_file *after,
                      const struct report_options *options);

/* What JSON and the command line call a grouping; "tag", "tag_first_part", "call_site", ... */
const char *report_by_name(enum analysis_by by);

/* What remembered graphs refer to on the device, the largest first; to be freed. NULL when memory
 * is short. */
const struct snapshot_graph **report_graphs(const struct analysis *analysis, size_t *count);

/* Prints a label in at most `columns`, one per character. What is left out is left out in the
 * middle: a path or a template shows most at its ends. */
void report_print_label(FILE *out, const char *label, int columns);
/* Sentences in lines of the terminal's width, the first behind a mark. */
void report_print_wrapped(FILE *out, const char *text, const struct report_options *options);

/* The last part of a path; of "-", what it is. */
const char *report_base_name(const char *path);
/* The last parts of one of several paths, as many as no other path ends with. */
const char *report_name(char *const *paths, size_t count, size_t own);
/* Who wrote a snapshot: "tarn 0.1.0, driver cuda", "tarn run", "PyTorch" or "RMM". */
const char *report_writer(const struct snapshot *snapshot, char *text, size_t size);
/* Bytes reserved by a device's pools that nothing but graphs holds, and how many pools that is. */
uint64_t report_of_graphs(const struct analysis *analysis, uint64_t *pools);
/* The share of free memory that is not in the largest hole, 0 where nothing is free. */
double report_fragmentation(const struct analysis_state *state);
/* The share of reserved memory that no block covers. */
double report_free_share(const struct analysis_state *state);

#endif
