/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Checks of graphs that use memory which is in no block, pages of ranges and imports; and of copies
 * and fills that end in another block than they begin in. On the simulated libcuda. */
#include "report/graph_test.h"

#include <stdlib.h>
#include <sys/socket.h>
#include <tarn/range.h>
#include <tarn/share.h>
#include <unistd.h>

static struct found found;
static tarn_stream stream;

static uint64_t remembered(void *graph)
{
    uint64_t number = 0;
    OK(tarn_graph_remember(graph, &number));
    return number;
}

/* By number, as before a launch. */
static void is(uint64_t number, tarn_graph_verdict verdict)
{
    const tarn_graph_options options = {.size = sizeof options, .remembered = number};
    found.count = 0;
    found.summary = (tarn_graph_summary){.size = sizeof found.summary};
    OK(tarn_graph_check(NULL, &options, note, &found, &found.summary));
    CHECK(found.summary.verdict == verdict);
}

static void finds(const void *address, tarn_graph_certainty certainty, tarn_graph_state state)
{
    const tarn_graph_reference *it = finding(&found, address);
    CHECK(it && it->certainty == certainty && it->state == state);
}

/* ---- Ranges ---- */

static tarn_range *range;
static char *pages;
static size_t page;

static void range_begin(void)
{
    const tarn_range_options options = {.size = sizeof options};
    tarn_range_info info = {.size = sizeof info};
    OK(tarn_range_create(&options, 64 * MIB, &range));
    OK(tarn_range_info_get(range, &info));
    pages = info.address;
    page = info.page;
    OK(tarn_range_commit(range, 0, 2 * page, stream));
}

static void pages_that_go_are_seen(void **state)
{
    (void)state;
    range_begin();
    const void *fields[8] = {pages + 8};
    cu_graph graph = graph_made();
    add_one(graph, pages);
    add_packed(graph, fields, NULL);
    add_fill(graph, pages + page, 64);
    check_into(&found, graph, false);
    CHECK(found.summary.verdict == TARN_GRAPH_UNKNOWN && found.summary.unproven == 3);
    uint64_t number = remembered(graph);
    is(number, TARN_GRAPH_CLEAN);
    for (int again = 0; again < 2; again++) {
        OK(tarn_range_decommit(range, 0, 2 * page, stream));
        is(number, TARN_GRAPH_SUSPICIOUS);
        finds(pages, TARN_GRAPH_LIKELY, TARN_GRAPH_FREE);
        finds(pages + 8, TARN_GRAPH_PERHAPS, TARN_GRAPH_FREE);
        finds(pages + page, TARN_GRAPH_CERTAIN, TARN_GRAPH_FREE);
        OK(tarn_range_commit(range, 0, 2 * page, stream));
        is(number, TARN_GRAPH_SUSPICIOUS);
        finds(pages, TARN_GRAPH_LIKELY, TARN_GRAPH_CHANGED);
        finds(pages + page, TARN_GRAPH_CERTAIN, TARN_GRAPH_CHANGED);
    }
    OK(tarn_range_decommit(range, 0, 2 * page, stream));
    OK(tarn_range_destroy(range));
    is(number, TARN_GRAPH_SUSPICIOUS);
    finds(pages, TARN_GRAPH_LIKELY, TARN_GRAPH_UNMAPPED);
    finds(pages + page, TARN_GRAPH_CERTAIN, TARN_GRAPH_UNMAPPED);
    CU(cu.cuGraphDestroy(graph));
}

/* A page without memory, which gets some later. */
static void pages_that_come_are_others(void **state)
{
    (void)state;
    range_begin();
    cu_graph graph = graph_made();
    add_one(graph, pages + 4 * page);
    uint64_t number = remembered(graph);
    is(number, TARN_GRAPH_SUSPICIOUS);
    finds(pages + 4 * page, TARN_GRAPH_LIKELY, TARN_GRAPH_UNMAPPED);
    OK(tarn_range_commit(range, 4 * page, page, stream));
    is(number, TARN_GRAPH_SUSPICIOUS);
    finds(pages + 4 * page, TARN_GRAPH_LIKELY, TARN_GRAPH_CHANGED);
    CU(cu.cuGraphDestroy(graph));
    OK(tarn_range_decommit(range, 4 * page, page, stream));
    OK(tarn_range_decommit(range, 0, 2 * page, stream));
    OK(tarn_range_destroy(range));
}

/* ---- Imports ---- */

/* The share of a block, as another process has it. */
static tarn_share *sent(char *block)
{
    int sockets[2];
    tarn_share *share, *received;
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, sockets) == 0);
    OK(tarn_export(block, &share));
    OK(tarn_share_send(sockets[0], share));
    OK(tarn_share_receive(sockets[1], &received));
    OK(tarn_share_close(share));
    CHECK(close(sockets[0]) == 0 && close(sockets[1]) == 0);
    return received;
}

static void imports_that_go_are_seen(void **state)
{
    (void)state;
    void *imported = NULL, *other = NULL;
    char *first = alloc_on(stream, 2 * MIB), *second = alloc_on(stream, 2 * MIB);
    tarn_share *share = sent(first), *next = sent(second);
    OK(tarn_import(share, 0, &imported));
    cu_graph graph = graph_made();
    const void *fields[8] = {(char *)imported + 8};
    add_one(graph, imported);
    add_packed(graph, fields, NULL);
    check_into(&found, graph, false);
    CHECK(found.summary.verdict == TARN_GRAPH_UNKNOWN);
    uint64_t number = remembered(graph);
    is(number, TARN_GRAPH_CLEAN);
    OK(tarn_import_close(imported));
    is(number, TARN_GRAPH_SUSPICIOUS);
    finds(imported, TARN_GRAPH_LIKELY, TARN_GRAPH_UNMAPPED);
    finds((char *)imported + 8, TARN_GRAPH_PERHAPS, TARN_GRAPH_UNMAPPED);
    OK(tarn_import(next, 0, &other));
    CHECK(other == imported);
    is(number, TARN_GRAPH_SUSPICIOUS);
    finds(imported, TARN_GRAPH_LIKELY, TARN_GRAPH_CHANGED);
    OK(tarn_import_close(other));
    CU(cu.cuGraphDestroy(graph));
    OK(tarn_share_close(share));
    OK(tarn_share_close(next));
    OK(tarn_free(first));
    OK(tarn_free(second));
}

/* ---- Ends of copies and fills ---- */

static void the_end_of_a_copy_is_looked_at(void **state)
{
    (void)state;
    char *to = alloc_on(stream, 2 * MIB), *next = alloc_on(stream, 2 * MIB);
    CHECK(next == to + 2 * MIB);
    cu_graph fill = graph_made(), copy = graph_made(), within = graph_made();
    add_fill(fill, to, 2 * MIB + 1);
    add_copy(copy, to + MIB, to + MIB, MIB + 64);
    add_fill(within, to, 2 * MIB);
    uint64_t over = remembered(fill), both = remembered(copy), whole = remembered(within);
    is(over, TARN_GRAPH_CLEAN);
    CHECK(found.summary.references == 2);
    is(whole, TARN_GRAPH_CLEAN);
    CHECK(found.summary.references == 1);
    OK(tarn_free(next));
    is(over, TARN_GRAPH_SUSPICIOUS);
    finds(next, TARN_GRAPH_CERTAIN, TARN_GRAPH_FREE);
    CHECK(found.count == 1 && found.list[0].offset == 2 * MIB);
    is(both, TARN_GRAPH_SUSPICIOUS);
    CHECK(found.count == 2 && found.summary.certain == 2);
    finds(next + 63, TARN_GRAPH_CERTAIN, TARN_GRAPH_FREE);
    is(whole, TARN_GRAPH_CLEAN);
    CU(cu.cuGraphDestroy(fill));
    fill = graph_made(); /* not remembered */
    add_fill(fill, to, 2 * MIB + 1);
    check_into(&found, fill, false);
    CHECK(found.count == 1 && found.summary.certain == 1);
    CU(cu.cuGraphDestroy(fill));
    CU(cu.cuGraphDestroy(copy));
    CU(cu.cuGraphDestroy(within));
    OK(tarn_free(to));
}

static int begin(void **state)
{
    (void)state;
    host_start_with(1, 1024 * MIB);
    cuda_calls_load();
    OK(tarn_export_enable(0));
    stream = lease(0);
    return 0;
}

int main(void)
{
    setenv("TARN_DRIVER", "cuda", 1);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pages_that_go_are_seen),
        cmocka_unit_test(pages_that_come_are_others),
        cmocka_unit_test(imports_that_go_are_seen),
        cmocka_unit_test(the_end_of_a_copy_is_looked_at),
    };
    return cmocka_run_group_tests(tests, begin, NULL);
}
