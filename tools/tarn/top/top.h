/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* `tarn top`: finding the live pages of processes, reading them, and showing what they say. Nothing
 * that a page says is trusted: counts are checked, texts are ended and made printable, and numbers
 * are numbers. */
#ifndef TOOLS_TOP_H
#define TOOLS_TOP_H

#include "report/page.h"
#include "units.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

/* What a process showed at one moment. */
struct top_reading {
    struct page_head head;
    struct survey survey;
    uint64_t sequence;
};

/* top_page.c: files ---------------------------------------------------------------------------- */

enum top_result {
    TOP_OK,
    TOP_NONE,    /* nothing of that name, or nothing was written yet */
    TOP_ENDED,   /* its process is dead */
    TOP_FOREIGN, /* another user's */
    TOP_BAD      /* no page, or another version's; or it cannot be read: `why` says it */
};

struct top_why {
    char text[512];
};

/* Opens a page; `file` is the caller's to close. */
enum top_result top_open(const char *path, int *file, struct top_why *why);
/* Reads an open page. Of one whose process died in a write, or is at it for long, TOP_NONE. */
enum top_result top_read(int file, struct top_reading *reading, struct top_why *why);
/* Seconds without a newer reading after which the process counts as silent. */
double top_patience(const struct top_reading *reading);
/* Reads an open page as soon as it shows something newer than `before`. False if its process ended
 * first, or is silent. */
bool top_read_newer(int file, const struct top_reading *before, struct top_reading *reading);

/* The pages of living processes, sorted by process number. */
struct top_list {
    struct top_entry {
        char path[4096];
        /* The number of the process, with the rest of the page's name; unique in this list. */
        char number[32];
        struct page_head head;
        struct top_reading *reading; /* NULL: nothing was written yet */
        uint64_t reserved;           /* bytes, of all devices */
        uint32_t devices;
        bool foreign; /* another user's: nothing but the path is known */
    } * entries;
    size_t count, foreign;
    /* Pages that were not looked at: beyond the most of their user, or after the most of time. */
    size_t left_out;
};

/* Bounds of a list. Other users can put any number of pages where pages are looked for, and can
 * keep them unreadable. So a list has at most TOP_PAGES_OF_USER pages of each user, waits
 * TOP_WAIT_OF_USER_MS for pages of one user that are being written, and reads no further page after
 * TOP_LIST_MS. */
enum { TOP_PAGES_OF_USER = 256, TOP_WAIT_OF_USER_MS = 100, TOP_LIST_MS = 2000 };

/* Looks through a directory, or with NULL those where pages are usually made; `pid` not 0: also
 * where that process's would be. Removes what dead processes of this user left. False when memory
 * is short. */
bool top_list_make(const char *directory, long pid, struct top_list *list);
void top_list_finish(struct top_list *list);

/* top_frame.c: text ---------------------------------------------------------------------------- */

struct top_frame {
    char *text; /* lines, each ended by a newline */
    size_t length, capacity;
    bool failed; /* memory was short */
};

/* What a graph shows: of each device the newest readings. */
enum { TOP_PAST = 120, TOP_PAST_DEVICES = 16 };
struct top_history {
    struct top_past {
        int number;   /* of the device */
        size_t count; /* readings, TOP_PAST at most, the oldest first */
        struct top_past_reading {
            uint64_t allocated, reserved; /* bytes */
        } readings[TOP_PAST];
    } devices[TOP_PAST_DEVICES];
    size_t count;
};
void top_history_add(struct top_history *history, const struct survey *survey);

struct top_look {
    const struct top_history *history; /* NULL: no graph */
    int width;                         /* columns; 0: no limit */
    size_t rows;                       /* of a table, at most; 0: no limit */
    int device;                        /* -1: all */
    bool utf8, colour;
    double silent; /* seconds since the page last changed; 0: it does */
};

/* Shows a reading, with the rates since `before`, which may be NULL. */
void top_frame_make(struct top_frame *frame, const struct top_reading *before,
                    const struct top_reading *now, const struct top_look *look);
void top_frame_finish(struct top_frame *frame);

/* top_json.c ----------------------------------------------------------------------------------- */

bool top_json_write(FILE *out, const struct top_reading *before, const struct top_reading *now,
                    int device);
struct fleet;
bool top_json_list(FILE *out, const struct fleet *fleet);

/* Changes a second of what a device has counted, between two readings. */
struct top_rates {
    bool known;
    double allocations, frees, bytes, driver_calls, driver_bytes;
};
struct top_rates top_rates_of(const struct top_reading *before, const struct top_reading *now,
                              const struct survey_device *device);

/* How long ago a second since 1970 was. */
struct units_text top_since(uint64_t started);

/* 1 - the longest piece of free memory / all of it; 0 where there is none. */
double top_fragmentation(const struct survey_device *device);

#endif
