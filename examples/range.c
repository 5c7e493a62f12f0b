/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* A key-value cache in a range: each request has addresses for the longest text that there may be,
 * and memory for what it has so far. */
#include <stdio.h>
#include <stdlib.h>
#include <tarn/tarn.h>

enum { REQUESTS = 4, MOST = 64 }; /* pages of a request */
static size_t page;
static tarn_range *cache;

static void must(tarn_status status)
{
    if (status == TARN_OK)
        return;
    fprintf(stderr, "%s: %s\n", tarn_status_name(status), tarn_last_error());
    exit(1);
}

static size_t offset_of(int request, int pages)
{
    return ((size_t)request * MOST + (size_t)pages) * page;
}

static void show(const char *when)
{
    tarn_range_info info = {.size = sizeof info};
    must(tarn_range_info_get(cache, &info));
    printf("%-30s %2zu pages committed, %2zu decommitted\n", when, info.committed / page,
           info.decommitted / page);
}

int main(void)
{
    tarn_stream stream;
    tarn_range_info info = {.size = sizeof info};
    must(tarn_stream_lease(0, 0, &stream));
    must(tarn_range_create(NULL, (size_t)REQUESTS * MOST << 21, &cache));
    must(tarn_range_info_get(cache, &info));
    page = info.page;

    for (int pages = 0; pages < 6; pages++) /* they grow page by page */
        for (int request = 0; request < REQUESTS; request++)
            must(tarn_range_commit(cache, offset_of(request, pages), page, stream));
    show("four requests have grown");

    must(tarn_range_decommit(cache, offset_of(1, 0), 6 * page, stream));
    show("one has ended");
    must(tarn_range_commit(cache, offset_of(1, 0), 2 * page, stream));
    show("another has begun there");
    must(tarn_range_commit(cache, offset_of(2, 6), 4 * page, stream));
    show("and one grows with its memory");

    must(tarn_range_destroy(cache));
    must(tarn_stream_return(stream));
    return 0;
}
