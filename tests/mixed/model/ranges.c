/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* One range per device, in its default pool, whose pages come and go beside everything else. Work
 * of the stream that a page was committed on writes to it, and checks that no work of an earlier
 * owner writes there any more. */
#include "mixed/model/mixed.h"

enum { PAGES = 6, PAGE_SIZE = 2 << 20 };

static struct {
    tarn_range *range; /* NULL: there is none now */
    unsigned char *start;
    struct page {
        bool committed;
        int flow;
        unsigned life;
        unsigned char value;
    } pages[PAGES];
} ranges[DEVICES];

static void create(int device)
{
    tarn_pool *pool = NULL;
    tarn_range_info info = {.size = sizeof info};
    tarn_range_options options = {.size = sizeof options};
    MINE(tarn_pool_default(device, &pool));
    options.pool = pool;
    if (!WELL(BIT(TARN_ERROR_NOT_SUPPORTED), tarn_range_create, &options, (size_t)PAGES * PAGE_SIZE,
              &ranges[device].range))
        return;
    SURE(tarn_range_info_get, ranges[device].range, &info);
    ranges[device].start = info.address;
}

/* A stream that takes work outside of captures; NULL: none. */
static struct flow *a_flow(int device)
{
    struct flow *flow = some_flow(device);
    return flow && takes_work(flow) && !captures_now(flow) && flow->capture < 0 ? flow : NULL;
}

static uint64_t captured(void)
{
    return any_open(-1) ? BIT(TARN_ERROR_CAPTURE) : 0;
}

static void use(int device, struct page *page, struct flow *flow, int before)
{
    unsigned char *start = ranges[device].start + (size_t)(page - ranges[device].pages) * PAGE_SIZE;
    page->value = (unsigned char)(1 + below(100));
    (void)use_bytes(flow, start, PAGE_SIZE, before, page->value, "a page of a range");
}

static void op_commit(void)
{
    int device = (int)below((unsigned)m.devices), first = (int)below(PAGES),
        count = 1 + (int)below(3);
    struct flow *flow = a_flow(device);
    bool taken = false;
    if (!ranges[device].range)
        create(device);
    if (!ranges[device].range || !flow || first + count > PAGES)
        return;
    for (int i = first; i < first + count; i++)
        taken |= ranges[device].pages[i].committed;
    bool good = WELL(captured() | BIT(TARN_ERROR_OUT_OF_MEMORY) |
                         (taken ? BIT(TARN_ERROR_INVALID_ARGUMENT) : 0),
                     tarn_range_commit, ranges[device].range, (size_t)first * PAGE_SIZE,
                     (size_t)count * PAGE_SIZE, flow->value);
    SO(!good || !taken, "a page is committed twice", "pages %d to %d", first, first + count);
    for (int i = first; good && i < first + count; i++) {
        struct page *page = &ranges[device].pages[i];
        page->committed = true;
        page->flow = (int)(flow - m.flows);
        page->life = flow->life;
        use(device, page, flow, -1);
    }
}

/* A page, and the stream that it was committed on, if that exists and takes work; NULL: none. */
static struct page *some_page(int device, struct flow **flow)
{
    struct page *page = &ranges[device].pages[below(PAGES)];
    if (!page->committed)
        return NULL;
    *flow = &m.flows[page->flow];
    return (*flow)->life == page->life && takes_work(*flow) && (*flow)->capture < 0 ? page : NULL;
}

static void op_decommit(void)
{
    int device = (int)below((unsigned)m.devices);
    struct flow *flow = NULL;
    struct page *page = some_page(device, &flow);
    if (!page)
        return;
    if (CHANCE(2))
        use(device, page, flow, page->value);
    size_t offset = (size_t)(page - ranges[device].pages) * PAGE_SIZE;
    if (WELL(captured(), tarn_range_decommit, ranges[device].range, offset, PAGE_SIZE, flow->value))
        page->committed = false;
}

static void op_hold(void)
{
    int device = (int)below((unsigned)m.devices);
    struct flow *flow = NULL;
    struct page *page = some_page(device, &flow);
    if (!page)
        return;
    size_t offset = (size_t)(page - ranges[device].pages) * PAGE_SIZE;
    if (!WELL(0, tarn_range_hold, ranges[device].range, offset, PAGE_SIZE, NULL))
        return;
    SO(!WELL(captured() | BIT(TARN_ERROR_BUSY), tarn_range_decommit, ranges[device].range, offset,
             PAGE_SIZE, flow->value),
       "a held page is decommitted", "page %zu", offset / PAGE_SIZE);
    SURE(tarn_range_unhold, ranges[device].range, offset, PAGE_SIZE);
}

static void op_count(void)
{
    int device = (int)below((unsigned)m.devices);
    tarn_range_info info = {.size = sizeof info};
    size_t committed = 0;
    for (int i = 0; i < PAGES; i++)
        committed += ranges[device].pages[i].committed ? PAGE_SIZE : 0;
    if (ranges[device].range && WELL(0, tarn_range_info_get, ranges[device].range, &info))
        SO(info.committed == committed, "other pages are committed", "%zu bytes, not %zu",
           info.committed, committed);
}

static void destroy(int device, uint64_t reasons)
{
    call_quiet();
    if (!ranges[device].range || !WELL(reasons, tarn_range_destroy, ranges[device].range))
        return;
    memset(&ranges[device], 0, sizeof ranges[device]);
}

static void op_destroy(void)
{
    destroy((int)below((unsigned)m.devices), captured());
}

void ranges_end(void)
{
    for (int device = 0; device < m.devices; device++) {
        destroy(device, 0);
        SO(!ranges[device].range, "a range stays", "device %d", device);
    }
}

const struct operation range_operations[] = {
    {"commit pages", 8, NULL, op_commit, false}, {"decommit a page", 10, NULL, op_decommit, false},
    {"hold a page", 2, NULL, op_hold, false},    {"count pages", 2, NULL, op_count, false},
    {"end a range", 1, NULL, op_destroy, false}, {NULL, 0, NULL, NULL, false}};
