/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* What the tool of the tests was told, line by line. injection.c is its library, which tarn opens
 * as it would a vendor's; the test that has opened it too asks by these. */
#ifndef TESTS_REPORT_INJECTION_H
#define TESTS_REPORT_INJECTION_H

#include <stddef.h>
#include <stdint.h>

/* A heap, or a region in it, that exists for the tool. */
struct told_range {
    uintptr_t start;
    size_t size;
    uintptr_t heap; /* of a region: its heap's start */
    char name[128];
};

struct told {
    int mistakes;       /* what makes no sense: a region in no heap, or over another, an end of
                           nothing */
    char first[256];    /* the first of them */
    int heaps, regions; /* that exist now */
    int ever, resized;  /* regions that ever did; changes of size */
    int depth;          /* of ranges, of the thread that asks */
    char ranges[1024];  /* what began and ended: "+name " and "- " */
    char domain[64];
    int tables;                     /* modules of the core that gave a table */
    struct told_range *all_regions; /* by address; valid until the next call of the library */
};

typedef const struct told *told_get(void);

#endif
