/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Each kind of mistake that debug mode finds, made once: it is reported once, with the right text,
 * and nothing else is. A case runs in a child of its own, since TARN_DEBUG is read once. */
#include "driver/driver.h"
#include "memory/arena/arena.h"
#include "support/host.h"
#include "support/live.h"

#include <dlfcn.h>
#include <inttypes.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <tarn/debug.h>
#include <unistd.h>

#include <cmocka.h>

#define MEMORY (128 * MIB)

static struct {
    int count;
    tarn_debug_report last;
    char text[4096];
} heard;

static void hear(const tarn_debug_report *report, void *user)
{
    CHECK(user == &heard && report->size == sizeof *report);
    heard.count++;
    heard.last = *report;
    snprintf(heard.text, sizeof heard.text, "%s", report->text);
    tarn_block_info info = {.size = sizeof info}; /* it may call tarn */
    (void)tarn_pointer_info_get(report->block, &info);
}

static tarn_stream stream, other;

static void begin(const char *words)
{
    setenv("TARN_DEBUG", words, 1);
    host_start_with(2, MEMORY);
    tarn_debug_callback_set(hear, &heard);
    stream = lease(0);
    other = lease(0);
    OK(tarn_stream_set(stream));
}

/* The last call must have been all there is to hear. */
static void heard_once(tarn_debug_kind kind, const void *block, size_t requested, int64_t offset)
{
    CHECK(tarn_debug_reports() == 1 && heard.count == 1);
    CHECK(heard.last.kind == kind);
    CHECK(heard.last.block == block && heard.last.requested == requested &&
          heard.last.offset == offset);
}

static void says(const char *text)
{
    if (!strstr(heard.text, text))
        fprintf(stderr, "not in the report: %s\n%s\n", text, heard.text);
    CHECK(strstr(heard.text, text));
}

/* The first words are the fault. */
static void begins(const char *text)
{
    says(text);
    CHECK(strncmp(heard.text, text, strlen(text)) == 0);
}

/* A file and its line where libdw reads debug information, which this file has, else the object and
 * an offset. */
static void says_where(void)
{
    void *there = dlopen("libdw.so.1", RTLD_NOW | RTLD_LOCAL);
    says(there ? "test_debug.c:" : "memory.debug+0x");
}

static void fill(tarn_stream on, void *address, int value, size_t size)
{
    OK(tarn_host_fill(0, native_of(on), address, value, size));
}

static void ends_clean(void)
{
    uint64_t count = tarn_debug_reports();
    nothing_is_left(0);
    OK(tarn_debug_check(0));
    CHECK(tarn_debug_reports() == count);
    OK(tarn_shutdown());
    CHECK(tarn_debug_reports() == count);
}

static void *block_with_tag(size_t size, size_t alignment)
{
    tarn_alloc_options options = {
        .size = sizeof options, .device = 0, .stream = stream, .alignment = alignment};
    void *block = NULL;
    OK(tarn_tag_intern("attention", &options.tag));
    OK(tarn_alloc(&options, size, &block));
    CHECK((uintptr_t)block % (alignment ? alignment : 512) == 0);
    return block;
}

/* Red zones ------------------------------------------------------------------------------------ */

static void write_behind(size_t size, size_t alignment, size_t at)
{
    begin("redzone,sites");
    char *block = block_with_tag(size, alignment);
    fill(stream, block, 1, size);
    fill(stream, block + size + at, 0x5A, 1);
    OK(tarn_free(block));
    OK(tarn_device_synchronize(0));
    heard_once(TARN_DEBUG_RED_ZONE, block, size, (int64_t)(size + at));
    char text[96];
    snprintf(text, sizeof text,
             "written behind its end: block of %zu bytes at %p, tag \"attention\"", size,
             (void *)block);
    begins(text);
    snprintf(text, sizeof text,
             "has 1 wrong byte, the nearest %zu bytes behind the block; the first is 0x5A", at);
    says(text);
    says("\n  allocated at ");
    says("\n  freed at ");
    says_where();
    says("pool (0, 0)");
    ends_clean();
}

static void a_write_right_behind_a_small_block(void)
{
    write_behind(100, 0, 0);
}

static void a_write_behind_a_block_without_a_round_size(void)
{
    write_behind(3 * MIB + 1, 0, 255);
}

static void a_write_behind_an_aligned_block(void)
{
    write_behind(4096, MIB, 17);
}

static void a_write_behind_a_block_of_a_whole_slot(void)
{
    write_behind(65536, 65536, 0);
}

static void a_write_before_a_block(void)
{
    begin("redzone");
    char *block = tarn_malloc(1000);
    fill(stream, block - 8, 0, 4);
    fill(stream, block, 0, 1000);
    OK(tarn_free(block));
    OK(tarn_device_synchronize(0));
    heard_once(TARN_DEBUG_RED_ZONE, block, 1000, -5);
    begins("written before its start: block of 1000 bytes at ");
    says("has 4 wrong bytes, the nearest 5 bytes before the block");
    ends_clean();
}

/* The report comes when the work has ended, and the free does not wait for it. */
static void a_write_that_comes_after_the_free_returned(void)
{
    begin("redzone,poison,quarantine");
    char *block = tarn_malloc(512);
    OK(tarn_host_work(0, native_of(stream), block, 512, 1000000));
    fill(stream, block + 512, 0, 1);
    uint64_t waited = ledger_of(0).waited_ns;
    OK(tarn_free(block));
    CHECK(tarn_debug_reports() == 0 && ledger_of(0).waited_ns == waited);
    OK(tarn_device_synchronize(0));
    heard_once(TARN_DEBUG_RED_ZONE, block, 512, 512);
    ends_clean();
}

static void a_write_behind_a_live_block(void)
{
    begin("redzone");
    char *block = tarn_malloc(5000);
    fill(stream, block + 5000, 0, 3);
    OK(tarn_device_synchronize(0));
    CHECK(tarn_debug_reports() == 0);
    OK(tarn_debug_check(0));
    heard_once(TARN_DEBUG_RED_ZONE, block, 5000, 5000);
    OK(tarn_debug_check(0));
    OK(tarn_free(block));
    OK(tarn_debug_check(0));
    CHECK(tarn_debug_reports() == 1);
    ends_clean();
}

static void a_write_behind_a_block_that_is_live_at_shutdown(void)
{
    begin("redzone");
    char *block = tarn_malloc(5000);
    fill(stream, block + 5000, 0, 3);
    OK(tarn_device_synchronize(0));
    OK(tarn_shutdown());
    heard_once(TARN_DEBUG_RED_ZONE, block, 5000, 5000);
}

static void a_write_behind_a_block_of_a_pool(void)
{
    tarn_pool *pool = NULL;
    void *block = NULL;
    begin("redzone,sites");
    OK(tarn_pool_create(NULL, &pool));
    OK(tarn_pool_alloc(pool, stream, 777, &block));
    fill(stream, (char *)block + 777, 0, 1);
    OK(tarn_free_on(block, other));
    OK(tarn_device_synchronize(0));
    heard_once(TARN_DEBUG_RED_ZONE, block, 777, 777);
    says("pool (0, 1)");
    OK(tarn_pool_release(pool));
    ends_clean();
}

static void a_block_has_what_was_asked_for_and_no_more(void)
{
    begin("redzone");
    char *block = tarn_malloc(1001);
    tarn_block_info info = {.size = sizeof info};
    OK(tarn_pointer_info_get(block + 1000, &info));
    CHECK(info.base == block && info.usable_size == 1001 && info.requested == 1001);
    CHECK(usable_size(block) == 1001);
    OK(tarn_extend(block, 1001));
    GIVES(tarn_extend(block, 1002), TARN_ERROR_NO_ROOM);
    CHECK(strstr(tarn_last_error(), "red zone"));
    fill(stream, block, 1, 1001);
    OK(tarn_free(block));
    OK(tarn_device_synchronize(0));
    CHECK(tarn_debug_reports() == 0);
    ends_clean();
}

/* Poison and quarantine ------------------------------------------------------------------------ */

static bool is_all(const void *bytes, unsigned char value, size_t size)
{
    for (size_t i = 0; i < size; i++)
        if (((const unsigned char *)bytes)[i] != value)
            return false;
    return true;
}

static void new_and_freed_blocks_are_poisoned(void)
{
    begin("poison,quarantine");
    char *block = tarn_malloc(300000);
    OK(tarn_device_synchronize(0));
    CHECK(is_all(block, 0xCD, 300000));
    fill(stream, block, 7, 300000);
    OK(tarn_free_on(block, other));
    OK(tarn_device_synchronize(0));
    CHECK(is_all(block, 7, 300000));
    CHECK(tarn_debug_reports() == 0);
    CHECK(is_all(block, 0xDD, 300000));
    ends_clean();
}

static void a_write_after_the_free(void)
{
    begin("quarantine,sites");
    char *block = tarn_malloc(300000);
    OK(tarn_free(block));
    OK(tarn_device_synchronize(0));
    CHECK(tarn_debug_reports() == 0);
    fill(other, block + 70001, 3, 10);
    OK(tarn_device_synchronize(0));
    CHECK(tarn_malloc(300000) != block);
    CHECK(tarn_debug_reports() == 0);
    OK(tarn_debug_check(0));
    heard_once(TARN_DEBUG_WRITE_AFTER_FREE, block, 300000, 70001);
    begins("written after its free: block of 300000 bytes at ");
    says("; 10 bytes were written, the first at offset 70001: 0x03");
    says("\n  allocated at ");
    says("\n  freed at ");
    OK(tarn_shutdown());
}

static void the_oldest_leave_a_full_quarantine_and_are_looked_at(void)
{
    begin("quarantine=4M");
    char *first = tarn_malloc(MIB), *later[4], *large = tarn_malloc(5 * MIB);
    OK(tarn_free(large)); /* too large for it */
    OK(tarn_free(first));
    OK(tarn_device_synchronize(0));
    CHECK(tarn_debug_reports() == 0);
    fill(other, first, 3, 1);
    OK(tarn_device_synchronize(0));
    for (int i = 0; i < 4; i++)
        later[i] = tarn_malloc(MIB);
    for (int i = 0; i < 4; i++) {
        CHECK(later[i] != first);
        OK(tarn_free(later[i]));
    }
    OK(tarn_device_synchronize(0));
    heard_once(TARN_DEBUG_WRITE_AFTER_FREE, first, MIB, 0);
    ends_clean();
}

static void memory_pressure_empties_the_quarantine_first(void)
{
    begin("quarantine=1G,poison,redzone");
    OK(tarn_device_limit_set(0, 16 * MIB));
    for (int i = 0; i < 20; i++) {
        void *block = tarn_malloc(3 * MIB);
        CHECK(block);
        OK(tarn_free(block));
    }
    void *whole = alloc_on(other, 14 * MIB);
    OK(tarn_free(whole));
    whole = alloc_on(stream, 14 * MIB);
    OK(tarn_free(whole));
    CHECK(tarn_debug_reports() == 0);
    ends_clean();
}

/* What the loss sets free is for nobody: debug mode's own copy of it may not have ended. */
static void a_loss_while_memory_is_looked_for(void)
{
    begin("quarantine");
    OK(tarn_device_limit_set(0, 16 * MIB));
    void *first = tarn_malloc(14 * MIB), *second = &second;
    OK(tarn_free(first));
    OK(tarn_device_synchronize(0));
    CHECK(tarn_debug_reports() == 0); /* it is in quarantine */
    OK(tarn_host_fail_set(kind_of("stream_synchronize"), 1, false, TARN_ERROR_DEVICE_LOST));
    GIVES(tarn_alloc_on(stream, 14 * MIB, &second), TARN_ERROR_DEVICE_LOST);
    CHECK(second == (void *)&second && tarn_debug_reports() == 0);
}

/* Refused frees -------------------------------------------------------------------------------- */

static void free_twice(const char *words, bool gone)
{
    begin(words);
    char *block = block_with_tag(2000, 0);
    OK(tarn_free(block));
    if (gone)
        OK(tarn_device_trim(0, 0));
    /* The addresses of a plain segment go with it */
    bool is_known = !gone || arena_if_used(0)->store.kind.pieces;
    GIVES(tarn_free(block), is_known ? TARN_ERROR_DOUBLE_FREE : TARN_ERROR_INVALID_POINTER);
    CHECK(strstr(tarn_last_error(), "tag \"attention\"") && strstr(tarn_last_error(), "freed at "));
    says_where();
    heard_once(TARN_DEBUG_BAD_FREE, block, 2000, 0);
    begins(is_known ? "freed twice: block of 2000 bytes at " : "invalid free: ");
    says("block of 2000 bytes at ");
    says("\n  freed now at ");
    says("\n  allocated at ");
    says("\n  freed at ");
    char *now = strstr(heard.text, "freed now at "), *then = strstr(heard.text, "\n  freed at ");
    now += strlen("freed now at ");
    then += strlen("\n  freed at ");
    CHECK(strncmp(now, then, strcspn(now, "<\n")) != 0); /* the innermost frame */
    ends_clean();
}

static void a_second_free_names_the_first(void)
{
    free_twice("sites", false);
}

static void a_second_free_out_of_quarantine_names_the_first(void)
{
    free_twice("redzone,quarantine", false);
}

static void a_second_free_long_after_the_first_names_it(void)
{
    free_twice("all", true);
}

static void a_foreign_pointer(void)
{
    int local = 0;
    begin("sites");
    GIVES(tarn_free(&local), TARN_ERROR_INVALID_POINTER);
    heard_once(TARN_DEBUG_BAD_FREE, &local, 0, 0);
    begins("invalid free: 0x");
    says("is not memory that tarn handed out\n  freed now at ");
    CHECK(!strstr(heard.text, "allocated at"));
    ends_clean();
}

static void a_pointer_into_a_block(void)
{
    begin("redzone");
    char *block = tarn_malloc(2000);
    GIVES(tarn_free_on(block + 512, stream), TARN_ERROR_INVALID_POINTER);
    heard_once(TARN_DEBUG_BAD_FREE, block + 512, 2000, 512);
    says("it lies 512 bytes into the one at");
    says("allocated at ");
    CHECK(!strstr(heard.text, "\n  freed at"));
    GIVES(tarn_free_after(block - 512, NULL), TARN_ERROR_INVALID_ARGUMENT);
    CHECK(tarn_debug_reports() == 1);
    GIVES(tarn_record_stream(block - 512, other), TARN_ERROR_INVALID_POINTER);
    GIVES(tarn_record_stream(block + 2000, other), TARN_ERROR_INVALID_POINTER);
    GIVES(tarn_free(block - 512), TARN_ERROR_INVALID_POINTER);
    CHECK(tarn_debug_reports() == 2 && strstr(tarn_last_error(), "512 bytes before the one at"));
    OK(tarn_free(block));
    ends_clean();
}

static void questions_are_no_mistakes(void)
{
    begin("all");
    char *block = tarn_malloc(2000);
    tarn_block_info info = {.size = sizeof info};
    OK(tarn_free(block));
    GIVES(tarn_pointer_info_get(block, &info), TARN_ERROR_INVALID_POINTER);
    CHECK(tarn_debug_reports() == 0);
    ends_clean();
}

/* Streams -------------------------------------------------------------------------------------- */

static void use_without_an_order(const char *words, bool reuse)
{
    begin(words);
    char text[64];
    char *block = block_with_tag(MIB, 0);
    work_on(other, block, MIB, 1000000); /* and nobody says so */
    OK(tarn_free(block));
    if (reuse) {
        CHECK(tarn_malloc(MIB) == block);
        work_on(stream, block, 100, 1000);
    }
    OK(tarn_stream_synchronize(stream)); /* the work that the free waits for */
    CHECK(tarn_debug_reports() == 1);
    CHECK(heard.count == 1 && heard.last.kind == TARN_DEBUG_CONFLICT && heard.last.block == block);
    begins("use without an order between streams: ");
    snprintf(text, sizeof text, "stream %p of device 0", native_of(other));
    says(text);
    if (reuse) {
        snprintf(text, sizeof text, "stream %p of device 0", native_of(stream));
        says(text);
    }
    says("tag \"attention\"");
    says("\n  allocated at ");
    says("\n  freed at ");
    says_where();
    OK(tarn_device_synchronize(0));
    CHECK(tarn_debug_reports() == 1);
    OK(tarn_shutdown());
}

static void memory_used_on_another_stream_and_given_out_again(void)
{
    use_without_an_order("check,sites", true);
}

static void memory_used_on_another_stream_while_debug_mode_fills_it(void)
{
    use_without_an_order("check,poison,redzone,quarantine", false);
}

static void work_that_is_recorded_or_waited_for_is_no_mistake(void)
{
    begin("all");
    tarn_event *event = NULL;
    OK(tarn_event_create(0, &event));
    for (int i = 0; i < 3; i++) {
        char *block = tarn_malloc(MIB);
        work_on(other, block, MIB, 1000000);
        OK(tarn_event_record(event, other));
        if (i == 0)
            OK(tarn_record_stream(block, other));
        if (i == 1)
            OK(tarn_stream_wait(stream, event));
        OK(i == 2 ? tarn_free_after(block, event) : tarn_free(block));
        CHECK(tarn_malloc(MIB));
        OK(tarn_debug_check(0));
    }
    CHECK(tarn_debug_reports() == 0);
    OK(tarn_event_destroy(event));
}

static void blocks_of_a_retired_stream(void)
{
    begin("redzone,poison,quarantine");
    void *native = NULL;
    tarn_stream adopted = 0;
    OK(driver->stream_create(0, 0, false, &native));
    OK(tarn_stream_adopt(0, native, &adopted));
    char *good = alloc_on(adopted, 600), *bad = alloc_on(adopted, 600);
    OK(tarn_host_fill(0, native, bad + 600, 1, 1));
    OK(tarn_stream_retire(adopted));
    OK(driver->stream_destroy(0, native));
    OK(tarn_free(good));
    OK(tarn_free(bad));
    OK(tarn_device_synchronize(0));
    heard_once(TARN_DEBUG_RED_ZONE, bad, 600, 600);
    ends_clean();
}

/* Captures and pools --------------------------------------------------------------------------- */

static void captures_are_left_alone(void)
{
    void *graph = NULL, *inside = NULL;
    tarn_pool *pool = NULL;
    begin("redzone,poison,quarantine,sites");
    char *before = tarn_malloc(1000);
    OK(tarn_pool_create(NULL, &pool));
    OK(tarn_pool_capture_begin(pool, stream, TARN_CAPTURE_GLOBAL));
    uint64_t sets = calls_of(0, "set"), copies = calls_of(0, "copy"),
             records = calls_of(0, "event_record");
    inside = alloc_on(stream, 1000);
    fill(stream, inside, 9, 1000);
    OK(tarn_free(before));
    CHECK(calls_of(0, "set") == sets && calls_of(0, "copy") == copies &&
          calls_of(0, "event_record") == records);
    OK(tarn_free(alloc_on(other, 1000))); /* a stream that does not capture */
    CHECK(tarn_debug_reports() == 0);
    OK(tarn_capture_end(stream, &graph));
    OK(tarn_free(inside)); /* the graph still writes there */
    OK(tarn_device_synchronize(0));
    CHECK(tarn_debug_reports() == 0); /* what is held back now is held when the graph runs */
    for (int i = 0; i < 3; i++) {
        OK(tarn_host_graph_launch(0, graph, native_of(stream)));
        OK(tarn_device_synchronize(0));
        OK(tarn_debug_check(0));
    }
    OK(tarn_device_synchronize(0));
    CHECK(is_all(inside, 9, 1000));
    OK(tarn_host_graph_destroy(graph));
    OK(tarn_debug_check(0));
    CHECK(tarn_debug_reports() == 0);
    OK(tarn_pool_release(pool));
    ends_clean();
}

static void a_suspended_pool(void)
{
    tarn_pool_options options = {.size = sizeof options, .segments = TARN_SEGMENTS_VIRTUAL};
    tarn_pool *pool = NULL;
    void *kept = NULL, *freed = NULL, *bad = NULL;
    begin("redzone,poison,quarantine");
    for (int keep = 0; keep < 2; keep++) {
        OK(tarn_pool_create(&options, &pool));
        OK(tarn_pool_alloc(pool, stream, 1000, &kept));
        OK(tarn_pool_alloc(pool, stream, 1000, &freed));
        OK(tarn_pool_alloc(pool, stream, MIB, &bad));
        OK(tarn_free(freed));
        OK(tarn_pool_suspend(pool, keep));
        OK(tarn_debug_check(0));
        OK(tarn_pool_resume(pool));
        fill(stream, (char *)bad + MIB, 1, 1);
        OK(tarn_free(bad));
        OK(tarn_free(kept));
        OK(tarn_debug_check(0));
        CHECK(tarn_debug_reports() == (unsigned)keep); /* what was discarded has no zones any
                                                          more */
        OK(tarn_pool_release(pool));
    }
    heard_once(TARN_DEBUG_RED_ZONE, bad, MIB, (int64_t)MIB);
    ends_clean();
}

static void a_pool_that_is_not_suspended(void)
{
    tarn_pool_options options = {.size = sizeof options, .segments = TARN_SEGMENTS_VIRTUAL};
    tarn_pool *pool = NULL;
    void *bad = NULL;
    begin("redzone");
    OK(tarn_pool_create(&options, &pool));
    OK(tarn_pool_alloc(pool, stream, MIB, &bad));
    OK(tarn_anchor(bad, 1));
    CHECK(tarn_pool_suspend(pool, false) == TARN_ERROR_BUSY);
    OK(tarn_unanchor(bad, 1));
    fill(stream, (char *)bad + MIB, 1, 1);
    OK(tarn_free(bad));
    OK(tarn_debug_check(0));
    OK(tarn_pool_release(pool));
    heard_once(TARN_DEBUG_RED_ZONE, bad, MIB, (int64_t)MIB);
    ends_clean();
}

static void a_block_that_a_pool_of_another_kind_serves(void)
{
    tarn_pool_options options = {
        .size = sizeof options, .use_on_oom = true, .segments = TARN_SEGMENTS_PLAIN};
    tarn_block_info info = {.size = sizeof info};
    tarn_pool *pool = NULL;
    void *first = NULL;
    begin("redzone,quarantine");
    OK(tarn_pool_create(&options, &pool));
    OK(tarn_pool_alloc(pool, stream, 60 * MIB, &first));
    OK(tarn_device_limit_set(0, 80 * MIB));
    OK(tarn_free(first));
    OK(tarn_device_synchronize(0)); /* a request does not wait for such a pool's work */
    size_t size = 50 * MIB + 77;
    char *block = tarn_malloc(size);
    OK(tarn_pointer_info_get(block, &info));
    CHECK((char *)info.base == block && info.usable_size == size && info.pool.second);
    fill(stream, block, 1, size + 2);
    OK(tarn_free(block));
    OK(tarn_device_synchronize(0));
    heard_once(TARN_DEBUG_RED_ZONE, block, size, (int64_t)size);
    char text[64];
    snprintf(text, sizeof text, "pool (0, %" PRIu64 ")", info.pool.second);
    says(text);
    OK(tarn_pool_release(pool));
    ends_clean();
}

static void a_restored_pool(void)
{
    tarn_pool *pool = NULL;
    tarn_checkpoint *checkpoint = NULL;
    void *blocks[3];
    begin("all");
    OK(tarn_pool_create(NULL, &pool));
    for (int i = 0; i < 3; i++)
        OK(tarn_pool_alloc(pool, stream, i == 1 ? MIB : 900, &blocks[i]));
    OK(tarn_pool_checkpoint(pool, &checkpoint));
    OK(tarn_free(blocks[0]));
    OK(tarn_free(blocks[1]));
    OK(tarn_pool_restore(pool, checkpoint, NULL, NULL));
    bool same = false;
    OK(live_are(pool, blocks, 3, &same));
    CHECK(same);
    for (int i = 0; i < 3; i++) {
        CHECK(usable_size(blocks[i]) == (i == 1 ? MIB : 900));
        OK(tarn_free(blocks[i]));
    }
    OK(tarn_checkpoint_destroy(checkpoint));
    OK(tarn_pool_release(pool));
    CHECK(tarn_debug_reports() == 0);
    ends_clean();
}

/* The rest ------------------------------------------------------------------------------------- */

static void the_drivers_device_is_another(void)
{
    begin("context");
    OK(driver->activate(1));
    OK(tarn_free(NULL));
    OK(tarn_free(NULL));
    CHECK(tarn_debug_reports() == 1 && heard.count == 1 && heard.last.kind == TARN_DEBUG_DEVICE);
    begins("another current device: 0 for tarn and 1 for the driver");
    int device = 0;
    OK(tarn_device_adopt(&device));
    OK(tarn_free(NULL));
    CHECK(device == 1 && tarn_debug_reports() == 1);
    OK(driver->activate(0));
    OK(tarn_free(NULL));
    CHECK(tarn_debug_reports() == 2);
    OK(tarn_device_set(0));
    OK(tarn_free(NULL));
    CHECK(tarn_debug_reports() == 2);
}

static void leaks_are_listed_by_site(void)
{
    begin("leaks,sites");
    for (int i = 0; i < 5; i++)
        CHECK(tarn_malloc(1000));
    void *freed = tarn_malloc(100);
    OK(tarn_free(freed));
    CHECK(block_with_tag(300, 0));
    CHECK(tarn_debug_reports() == 0);
    OK(tarn_shutdown());
    CHECK(tarn_debug_reports() == 2 && heard.count == 2 && heard.last.kind == TARN_DEBUG_LEAK);
    CHECK(heard.last.requested == 300 || heard.last.requested == 5000);
    begins(heard.last.requested == 300 ? "never freed: 1 blocks of 300 bytes in all"
                                       : "never freed: 5 blocks of 5000 bytes in all");
    says("\n  allocated at ");
    says_where();
}

/* Of blocks that are gone it knows the last ones, and no more are kept. */
static void what_it_knows_does_not_grow(void)
{
    begin("leaks");
    uint64_t metadata = 0;
    for (int i = 0; i < 20000; i++) {
        OK(tarn_free(tarn_malloc((size_t)i % 5000 + 1)));
        if (i == 8000)
            metadata = metadata_bytes();
    }
    CHECK(tarn_debug_reports() == 0 && metadata_bytes() <= metadata + 65536);
}

static void nothing_is_on_without_words(void)
{
    begin("");
    char *block = tarn_malloc(1000);
    uint64_t calls = all_calls(0);
    OK(tarn_free(block));
    CHECK(tarn_malloc(1000) == block && all_calls(0) == calls);
    CHECK(usable_size(block) == 1024);
    OK(tarn_debug_check(0));
    OK(tarn_free(block));
    GIVES(tarn_free(block), TARN_ERROR_DOUBLE_FREE);
    CHECK(tarn_debug_reports() == 0);
    CHECK(calls_of(0, "set") == 0 && calls_of(0, "copy") == 0);
}

static void an_unknown_word_refuses_everything(void)
{
    setenv("TARN_DEBUG", "redzone,yellowzone", 1);
    host_start_with(1, MEMORY);
    void *handle = NULL;
    GIVES(tarn_free(NULL), TARN_ERROR_CONFIGURATION);
    CHECK(strstr(tarn_last_error(), "unknown word \"yellowzone\""));
    GIVES(tarn_alloc_on(TARN_STREAM_LEGACY, 1, &handle), TARN_ERROR_CONFIGURATION);
    int device = 0;
    GIVES(tarn_device_get(&device), TARN_ERROR_CONFIGURATION);
}

static void abort_stops_at_the_first(void **state)
{
    int texts[2];
    char text[512] = "";
    (void)state;
    CHECK(pipe(texts) == 0);
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        int local = 0;
        dup2(texts[1], STDERR_FILENO);
        signal(SIGABRT, SIG_DFL);
        begin("sites,abort");
        (void)tarn_free(&local);
        _exit(0);
    }
    int status = 0;
    CHECK(waitpid(child, &status, 0) == child);
    CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
    CHECK(read(texts[0], text, sizeof text - 1) > 0);
    CHECK(strstr(text, "TARN_DEBUG=abort: ") && strstr(text, "is not memory that tarn handed out"));
    close(texts[0]);
    close(texts[1]);
}

/* What a child with these words writes to standard error of a wrong free. */
static void hear_child(const char *words, char *text, size_t size)
{
    int texts[2];
    CHECK(pipe(texts) == 0);
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        int local = 0;
        dup2(texts[1], STDERR_FILENO);
        unsetenv("TARN_LOG");
        begin(words);
        (void)tarn_free(&local);
        _exit(tarn_debug_reports() != 1);
    }
    int status = -1;
    close(texts[1]);
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    ssize_t length = read(texts[0], text, size - 1);
    text[length > 0 ? length : 0] = '\0';
    close(texts[0]);
}

static void what_is_found_is_printed(void **state)
{
    char text[4096];
    (void)state;
    hear_child("sites", text, sizeof text);
    if (!strstr(text, "tarn: debug: ") || !strstr(text, "\ntarn: debug:   freed now at "))
        fprintf(stderr, "printed: %s\n", text);
    CHECK(strstr(text, "tarn: debug: ") == text &&
          strstr(text, "is not memory that tarn handed out"));
    CHECK(strstr(text, "\ntarn: debug:   freed now at "));
    CHECK(!strstr(strstr(text, "is not memory that") + 1, "is not memory that")); /* once */
    hear_child("sites,quiet", text, sizeof text);
    CHECK(!*text);
}

static void shut_down(const tarn_debug_report *report, void *user)
{
    (void)user;
    heard.last = *report;
    GIVES(tarn_shutdown(), TARN_ERROR_BUSY);
}

/* The call around it goes on, with what the shutdown would have ended. */
static void a_shutdown_in_the_callback_is_refused(void)
{
    begin("redzone");
    char *block = block_with_tag(1000, 0);
    fill(stream, block + 1000, 0x5A, 1);
    OK(tarn_free(block));
    OK(tarn_device_synchronize(0));
    tarn_debug_callback_set(shut_down, NULL);
    /* Until the beginning of a call tells it */
    for (int i = 0; i < 64 && heard.last.kind != TARN_DEBUG_RED_ZONE; i++)
        OK(tarn_free(alloc_on(stream, MIB)));
    CHECK(heard.last.kind == TARN_DEBUG_RED_ZONE);
    OK(tarn_free(alloc_on(other, MIB)));
    ends_clean();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        CHILD_TEST(a_write_right_behind_a_small_block),
        CHILD_TEST(a_write_behind_a_block_without_a_round_size),
        CHILD_TEST(a_write_behind_an_aligned_block),
        CHILD_TEST(a_write_behind_a_block_of_a_whole_slot),
        CHILD_TEST(a_write_before_a_block),
        CHILD_TEST(a_write_that_comes_after_the_free_returned),
        CHILD_TEST(a_write_behind_a_live_block),
        CHILD_TEST(a_write_behind_a_block_that_is_live_at_shutdown),
        CHILD_TEST(a_write_behind_a_block_of_a_pool),
        CHILD_TEST(a_block_has_what_was_asked_for_and_no_more),
        CHILD_TEST(new_and_freed_blocks_are_poisoned),
        CHILD_TEST(a_write_after_the_free),
        CHILD_TEST(the_oldest_leave_a_full_quarantine_and_are_looked_at),
        CHILD_TEST(memory_pressure_empties_the_quarantine_first),
        CHILD_TEST(a_loss_while_memory_is_looked_for),
        CHILD_TEST(a_second_free_names_the_first),
        CHILD_TEST(a_second_free_out_of_quarantine_names_the_first),
        CHILD_TEST(a_second_free_long_after_the_first_names_it),
        CHILD_TEST(a_foreign_pointer),
        CHILD_TEST(a_pointer_into_a_block),
        CHILD_TEST(questions_are_no_mistakes),
        CHILD_TEST(memory_used_on_another_stream_and_given_out_again),
        CHILD_TEST(memory_used_on_another_stream_while_debug_mode_fills_it),
        CHILD_TEST(work_that_is_recorded_or_waited_for_is_no_mistake),
        CHILD_TEST(blocks_of_a_retired_stream),
        CHILD_TEST(captures_are_left_alone),
        CHILD_TEST(a_suspended_pool),
        CHILD_TEST(a_pool_that_is_not_suspended),
        CHILD_TEST(a_block_that_a_pool_of_another_kind_serves),
        CHILD_TEST(a_restored_pool),
        CHILD_TEST(the_drivers_device_is_another),
        CHILD_TEST(leaks_are_listed_by_site),
        CHILD_TEST(a_shutdown_in_the_callback_is_refused),
        CHILD_TEST(what_it_knows_does_not_grow),
        CHILD_TEST(nothing_is_on_without_words),
        CHILD_TEST(an_unknown_word_refuses_everything),
        cmocka_unit_test(what_is_found_is_printed),
        cmocka_unit_test(abort_stops_at_the_first),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
