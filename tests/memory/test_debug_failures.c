/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Debug mode while calls fail, one at a time. The mistakes that a scenario makes are found where
 * nothing fails; where something does they may be missed, and nothing else is found instead; what
 * is said is said in whole. Its own calls that fail leave the program's memory as it is, and
 * nothing behind; and what the program is refused it may be refused without debug mode too. */
#include "memory/debug/debug_block.h"
#include "support/failures.h"
#include "support/host.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tarn/debug.h>

#include <cmocka.h>

#define MEMORY (40 * MIB)
#define BLOCKS 16
#define KINDS (TARN_DEBUG_LEAK + 1)

static struct {
    struct {
        unsigned char *start;
        size_t size;
        size_t written; /* bytes at its start, with the number of its size, on its stream */
    } blocks[BLOCKS];
    int count;
    tarn_stream streams[2], leased; /* leased: 0, or one that a scenario has */
    tarn_pool *pool;
    void *graph;
    bool excused;                                    /* in this run calls fail */
    unsigned made[KINDS];                            /* mistakes, by the kind of their report */
    unsigned heard[KINDS];                           /* reports that the function was given */
    uint64_t said;                                   /* reports before the run */
    char text[sizeof((struct debug_text *)0)->text]; /* the last */
} t;

/* ---- What is heard ---- */

static bool begins(const char *text, const char *with)
{
    return strncmp(text, with, strlen(with)) == 0;
}

/* A frame is an address, a name, or a file, each with a number in hexadecimal at its end. */
static bool is_end_of_a_frame(const char *end)
{
    return end[-1] == ')' || (end[-1] >= '0' && end[-1] <= '9') ||
           (end[-1] >= 'a' && end[-1] <= 'f');
}

/* The first line says what, the others where: a text that is cut ends in the middle of one. */
static void is_whole(const char *text, const char *first)
{
    static const char *const lines[] = {"  allocated at ", "  freed at ", "  freed now at ",
                                        "  block of "};
    CHECK(begins(text, first));
    for (const char *line = strchr(text, '\n'); line; line = strchr(line, '\n')) {
        bool known = false;
        line++;
        for (size_t i = 0; i < sizeof lines / sizeof *lines; i++)
            known = known || begins(line, lines[i]);
        CHECK(known && is_end_of_a_frame(line + strcspn(line, "\n")));
    }
}

static void hear(const tarn_debug_report *report, void *user)
{
    static const char *const firsts[KINDS] = {
        [TARN_DEBUG_BAD_FREE] = "",
        [TARN_DEBUG_RED_ZONE] = "written ",
        [TARN_DEBUG_WRITE_AFTER_FREE] = "written after its free: ",
        [TARN_DEBUG_CONFLICT] = "use without an order between streams: ",
        [TARN_DEBUG_DEVICE] = "another current device: ",
        [TARN_DEBUG_LEAK] = "never freed: 1 blocks of ",
    };
    (void)user;
    CHECK(report->size == sizeof *report && (int)report->kind >= 0 && report->kind < KINDS);
    is_whole(report->text, firsts[report->kind]);
    t.heard[report->kind]++;
    snprintf(t.text, sizeof t.text, "%s", report->text);
    if (t.heard[report->kind] > t.made[report->kind])
        fprintf(stderr, "not made: %s\n", report->text);
    CHECK(t.heard[report->kind] <= t.made[report->kind]);
}

/* Each report was of a mistake; and where nothing failed, each mistake was reported. */
static void judge(void)
{
    unsigned made = 0;
    for (int kind = 0; kind < KINDS; kind++) {
        CHECK(t.heard[kind] <= t.made[kind] && (t.excused || t.heard[kind] == t.made[kind]));
        made += t.made[kind];
    }
    uint64_t said = tarn_debug_reports() - t.said;
    CHECK(said <= made && (t.excused || said == made));
}

/* ---- What is done ---- */

static void begin(void)
{
    memset(t.made, 0, sizeof t.made);
    memset(t.heard, 0, sizeof t.heard);
    t.excused = injecting;
    t.said = tarn_debug_reports();
}

static int keep(void *pointer, size_t size, tarn_stream stream)
{
    CHECK(t.count < BLOCKS);
    t.blocks[t.count].start = pointer;
    t.blocks[t.count].size = size;
    size_t part = size < 65536 ? size : 65536;
    t.blocks[t.count].written =
        machine->fill(0, native_of(stream), pointer, (int)(size % 251), part) == TARN_OK ? part : 0;
    return t.count++;
}

/* A block that lives until it is freed; its index, or -1. */
static int take(int stream, size_t size)
{
    void *pointer = &t;
    tarn_status status = t.pool ? tarn_pool_alloc(t.pool, t.streams[stream], size, &pointer)
                                : tarn_alloc_on(t.streams[stream], size, &pointer);
    if (went_well(status, false, "alloc"))
        return keep(pointer, size, t.streams[stream]);
    CHECK(pointer == &t);
    return -1;
}

static void forget(int index)
{
    t.blocks[index] = t.blocks[--t.count];
}

static void *free_block(int index)
{
    void *pointer = t.blocks[index].start;
    OK(tarn_free(pointer));
    forget(index);
    return pointer;
}

/* One byte of a program's, on a stream; whether it could be queued. */
static bool write_byte(int stream, void *address)
{
    return machine->fill(0, native_of(t.streams[stream]), address, 0x5A, 1) == TARN_OK;
}

/* ---- Scenarios ---- */

static void blocks_are_looked_at(void)
{
    static const size_t sizes[] = {1, 700, 20000, 513, 300000, MIB, 4096, 64};
    begin();
    for (int i = 0; i < 8; i++)
        take(i % 2, sizes[i]);
    for (int i = t.count - 1; i >= 0; i -= 2)
        free_block(i);
    (void)TRY(tarn_debug_check(0));
    take(0, 5000);
    if (t.count > 0)
        (void)tarn_extend(t.blocks[0].start, t.blocks[0].size + 1); /* there is a red zone */
}

static void writes_beside_blocks_are_found(void)
{
    begin();
    for (int i = 0; i < 2; i++) {
        int index = take(i, 1000);
        if (index < 0)
            continue;
        t.made[TARN_DEBUG_RED_ZONE] += write_byte(i, t.blocks[index].start + (i ? 1000 : -1));
        if (i)
            free_block(index);
    }
    (void)TRY(tarn_debug_check(0));
}

static void writes_after_the_free_are_found(void)
{
    begin();
    int index = take(0, 70000);
    if (index < 0)
        return;
    void *gone = free_block(index);
    /* It is in quarantine now */
    if (TRY(tarn_stream_synchronize(t.streams[0])) && tarn_debug_reports() == t.said)
        t.made[TARN_DEBUG_WRITE_AFTER_FREE] += write_byte(1, (char *)gone + 100);
    (void)TRY(tarn_stream_synchronize(t.streams[1]));
    (void)TRY(tarn_debug_check(0));
}

/* The free is refused whatever fails, and the error is the report, as far as there is room for
 * it. */
static void wrong_frees_are_named(void)
{
    begin();
    int index = take(0, 2000);
    if (index < 0)
        return;
    unsigned char *pointer = t.blocks[index].start;
    t.made[TARN_DEBUG_BAD_FREE] += 2;
    GIVES(tarn_free(pointer + 512), TARN_ERROR_INVALID_POINTER);
    CHECK(t.heard[TARN_DEBUG_BAD_FREE] == 0 || begins(t.text, tarn_last_error()));
    free_block(index);
    tarn_status status = tarn_free(pointer);
    CHECK(status == TARN_ERROR_DOUBLE_FREE || status == TARN_ERROR_INVALID_POINTER);
    CHECK(t.heard[TARN_DEBUG_BAD_FREE] < 2 || begins(t.text, tarn_last_error()));
    CHECK(tarn_debug_reports() == t.said + 2); /* counted, also where there was no memory to hand
                                                  them on */
}

/* The host device alone sees it. */
static void use_without_an_order_is_found(void)
{
    begin();
    int index = take(0, 300000);
    if (index < 0 || machine->fail)
        return;
    unsigned char *pointer = t.blocks[index].start;
    (void)tarn_stream_synchronize(t.streams[0]);
    bool used = machine->work(0, native_of(t.streams[1]), pointer, 300000, 1000) == TARN_OK;
    free_block(index);
    t.made[TARN_DEBUG_CONFLICT] += used;
    (void)TRY(tarn_stream_synchronize(t.streams[0]));
    (void)tarn_debug_reports(); /* debug mode's own look meets the work on the other stream */
}

static void streams_use_blocks(void)
{
    tarn_event *event = NULL;
    begin();
    for (int i = 0; i < 3; i++)
        take(0, 900 + (size_t)i * 30000);
    if (t.count > 0 && TRY(tarn_record_stream(t.blocks[0].start, t.streams[1])))
        free_block(0);
    if (t.count > 0 && TRY(tarn_free_on(t.blocks[0].start, t.streams[1])))
        forget(0);
    if (t.count > 0 && TRY(tarn_event_create(0, &event)) &&
        TRY(tarn_event_record(event, t.streams[1])) &&
        TRY(tarn_free_after(t.blocks[0].start, event)))
        forget(0);
    OK(tarn_event_destroy(event));
    if (!TRY(tarn_stream_lease(0, 0, &t.leased)))
        return;
    void *pointer = NULL;
    if (TRY(tarn_alloc_on(t.leased, 5000, &pointer)))
        OK(tarn_free(pointer));
    if (TRY(tarn_stream_return(t.leased)))
        t.leased = 0;
}

/* What is in quarantine goes before anything is refused. */
static void memory_is_short(void)
{
    void *pointer = &t;
    begin();
    OK(tarn_device_limit_set(0, 8 * MIB));
    int first = take(0, 3 * MIB / 2), second = take(1, 3 * MIB / 2);
    if (second >= 0)
        free_block(second);
    if (first >= 0)
        free_block(first);
    (void)TRY(tarn_device_synchronize(0)); /* so that each run makes as many calls */
    bool is_full = take(1, 5 * MIB) >= 0;
    tarn_status status = tarn_alloc_on(t.streams[0], 4 * MIB, &pointer);
    CHECK(!status == (pointer != &t) && !(is_full && !status));
    if (!status)
        OK(tarn_free(pointer));
    if (status == TARN_ERROR_OUT_OF_MEMORY)
        CHECK(is_whole_shortage(tarn_last_error()));
    OK(tarn_device_limit_set(0, TARN_NO_LIMIT));
    (void)TRY(tarn_device_trim(0, 0));
}

static void pools_come_and_go(void)
{
    tarn_pool_options options = {.size = sizeof options};
    begin();
    if (!TRY(tarn_pool_create(&options, &t.pool)))
        return;
    take(0, 3000);
    take(1, 600000);
    take(0, 800);
    if (t.count > 0)
        free_block(0);
    (void)TRY(tarn_pool_trim(t.pool, 0));
    OK(tarn_pool_release(t.pool)); /* with live blocks */
    t.pool = NULL;
}

static void captures_are_left_alone(void)
{
    void *inside = NULL;
    begin();
    if (!TRY(tarn_pool_capture_begin(NULL, t.streams[0], TARN_CAPTURE_RELAXED)))
        return;
    if (TRY(tarn_alloc_on(t.streams[0], 3000, &inside)))
        OK(tarn_free(inside));
    take(1, 4000);
    if (TRY(tarn_capture_end(t.streams[0], &t.graph)))
        return;
    clear_injection();
    (void)tarn_capture_abort(t.streams[0]); /* where it is open still */
}

static const struct scenario scenarios[] = {
    {"blocks are looked at", blocks_are_looked_at},
    {"writes beside blocks are found", writes_beside_blocks_are_found},
    {"writes after the free are found", writes_after_the_free_are_found},
    {"wrong frees are named", wrong_frees_are_named},
    {"use without an order is found", use_without_an_order_is_found},
    {"streams use blocks", streams_use_blocks},
    {"memory is short", memory_is_short},
    {"pools come and go", pools_come_and_go},
    {"captures are left alone", captures_are_left_alone},
};

/* ---- The run ---- */

static void check_blocks(void)
{
    for (int i = 0; i < t.count; i++)
        for (size_t at = 0; at < t.blocks[i].written; at++)
            CHECK(t.blocks[i].start[at] == t.blocks[i].size % 251);
}

static void settle(void)
{
    OK(tarn_device_synchronize(0));
    check_blocks();
    if (t.graph)
        OK(machine->graph_destroy(t.graph));
    t.graph = NULL;
    OK(tarn_debug_check(0));
    judge();
    if (!machine->fail && t.made[TARN_DEBUG_CONFLICT])
        OK(tarn_host_ledger_reset(0));
    verify(0);
    while (t.count > 0)
        free_block(t.count - 1);
    if (t.pool)
        OK(tarn_pool_release(t.pool));
    t.pool = NULL;
    if (t.leased)
        OK(tarn_stream_return(t.leased));
    t.leased = 0;
    OK(tarn_debug_check(0));
    judge();
    nothing_is_left(0);
}

static void lost(void)
{
    while (t.count > 0)
        free_block(t.count - 1);
    if (t.pool)
        OK(tarn_pool_release(t.pool));
    t.pool = NULL;
    judge();
    CHECK(stats_of(0).allocation[0].current == 0);
}

static void set_up(void)
{
    tarn_debug_callback_set(hear, NULL);
    for (int i = 0; i < 2; i++)
        t.streams[i] = lease(0);
}

static void mistakes_are_found_and_nothing_else(void **state)
{
    (void)state;
    static const struct scenarios shared = {
        .set_up = set_up, .settle = settle, .lost = lost, .most = 40, .varies = true};
    each_failure_of(&shared, scenarios, sizeof scenarios / sizeof *scenarios);
}

/* ---- The first use, and the shutdown with its list of leaks ---- */

static void leak(void)
{
    void *pointer = NULL;
    tarn_debug_callback_set(hear, NULL);
    t.excused = injecting;
    if (TRY(tarn_alloc_on(TARN_STREAM_LEGACY, 5000, &pointer))) {
        t.made[TARN_DEBUG_LEAK]++;
        t.made[TARN_DEBUG_RED_ZONE] +=
            machine->fill(0, NULL, (char *)pointer + 5000, 1, 1) == TARN_OK;
    }
    (void)TRY(tarn_shutdown());
}

static void shut_down(void)
{
    OK(tarn_shutdown());
    judge();
}

static void what_leaks_is_listed(void **state)
{
    (void)state;
    each_failure_of_once(&(struct once){
        .name = "leaks are listed", .run = leak, .after = shut_down, .most = 40, .varies = true});
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(mistakes_are_found_and_nothing_else),
        cmocka_unit_test(what_leaks_is_listed),
    };
    setenv("TARN_DEBUG", "all", 1);
    host_start_with(1, MEMORY);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
