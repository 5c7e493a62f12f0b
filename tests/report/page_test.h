/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* What the tests of live pages share: a directory of their own, and a reader that is not the
 * program's. */
#ifndef TESTS_REPORT_PAGE_TEST_H
#define TESTS_REPORT_PAGE_TEST_H

#include "report/page.h"
#include "support/host.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static char directory[64];

static inline void directory_make(void)
{
    snprintf(directory, sizeof directory, "/tmp/tarn-test-live.XXXXXX");
    CHECK(mkdtemp(directory));
    CHECK(setenv("TARN_LIVE_DIRECTORY", directory, 1) == 0);
}

static inline void sleep_ms(unsigned ms)
{
    nanosleep(&(struct timespec){.tv_sec = ms / 1000, .tv_nsec = (long)(ms % 1000) * 1000000},
              NULL);
}

static inline void count_one(void *argument, const char *name)
{
    (void)name;
    ++*(int *)argument;
}

/* How many pages there are. */
static inline int page_files(void)
{
    int count = 0;
    CHECK(page_each(directory, count_one, &count));
    return count;
}

static inline const char *page_path(long pid)
{
    static char path[128];
    snprintf(path, sizeof path, "%s/" PAGE_PREFIX "%ld", directory, pid);
    return path;
}

/* Whether a living process shows the page of that name. */
static inline bool is_shown(const char *path)
{
    int file = open(path, O_RDONLY | O_CLOEXEC);
    bool shown = file >= 0 && page_is_shown(file);
    if (file >= 0)
        close(file);
    return shown;
}

/* A whole page, once the survey of that number, or a later one, is there; from malloc(). */
static inline struct page *page_wait(const char *path, uint64_t number)
{
    struct page *page = malloc(sizeof *page);
    for (int i = 0; i < 5000; i++) {
        uint64_t after = 1;
        int file = open(path, O_RDONLY | O_CLOEXEC);
        bool read_all = file >= 0 && pread(file, page, sizeof *page, 0) == (ssize_t)sizeof *page &&
                        pread(file, &after, sizeof after, offsetof(struct page, sequence)) ==
                            (ssize_t)sizeof after;
        if (file >= 0)
            close(file);
        if (read_all && after % 2 == 0 && after == page->sequence && page->survey.number >= number)
            return page;
        sleep_ms(2);
    }
    check_at(false, "the page is written to", __FILE__, __LINE__);
    return page;
}

#endif
