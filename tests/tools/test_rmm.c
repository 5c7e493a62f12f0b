/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* RMM's logs: the layouts of the years, what is refused and how it is named, and the workload that
 * comes of one. */
#include "input/rmm_csv.h"
#include "input/workload.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <zstd.h>

#include <cmocka.h>

#define HEADER RMM_CSV_HEADER "\n"
#define COUNT(array) (sizeof(array) / sizeof *(array))

static struct snapshot read_log(const char *text)
{
    struct snapshot snapshot;
    struct snapshot_error error;
    bool read = snapshot_read_buffer(text, strlen(text), &snapshot, &error);
    if (!read)
        fail_msg("%s", error.text);
    assert_int_equal(snapshot.trace_count, 1);
    return snapshot;
}

static void assert_event(const struct snapshot *snapshot, size_t at, enum snapshot_action action,
                         uint64_t address, uint64_t size, uint64_t stream, uint32_t thread,
                         int64_t time_us)
{
    assert_true(at < snapshot->traces[0].event_count);
    const struct snapshot_event *event = &snapshot->traces[0].events[at];
    assert_int_equal(event->action, action);
    assert_int_equal(event->address, address);
    assert_int_equal(event->size, size);
    assert_int_equal(snapshot->streams[event->stream], stream);
    assert_int_equal(event->thread, thread);
    assert_int_equal(event->time_us, time_us);
}

static void the_layouts_of_the_years(void **state)
{
    (void)state;
    struct snapshot snapshot =
        read_log(HEADER "99,00:00:01.000002,allocate,0x7f8a40000000,1024,0x7f8a38001020\n"
                        /* Without 0x */
                        "98,00:00:01.5,allocate,30a000000,256,2\r\n"
                        "\n"
                        "99,00:00:02,free,0x30A000000,256,0x2\n"
                        "98,00:00:03.000000,allocate failure,(nil),4096,0x0\n"
                        "98,00:00:03.000000,allocate failure,0x0,4097,0x0\n"
                        "97,5.25,deallocate,0x7f8a40000000,1024,0x1\n"
                        /* Until rmm#755 */
                        "97,00:00:04:000007,free,0x1,0,0x0\n"
                        /* The last line may lack its end */
                        "97,00:00:04,allocate,0x0,0,0x0");
    assert_int_equal(snapshot.traces[0].event_count, 8);
    assert_event(&snapshot, 0, SNAPSHOT_ALLOC, 0x7f8a40000000, 1024, 0x7f8a38001020, 1, 1000002);
    assert_event(&snapshot, 1, SNAPSHOT_ALLOC, 0x30a000000, 256, 2, 2, 1500000);
    assert_event(&snapshot, 2, SNAPSHOT_FREE_REQUESTED, 0x30a000000, 256, 2, 1, 2000000);
    assert_event(&snapshot, 3, SNAPSHOT_OOM, 0, 4096, 0, 2, 3000000);
    assert_event(&snapshot, 4, SNAPSHOT_OOM, 0, 4097, 0, 2, 3000000);
    assert_event(&snapshot, 5, SNAPSHOT_FREE_REQUESTED, 0x7f8a40000000, 1024, 1, 3, 5250000);
    assert_event(&snapshot, 6, SNAPSHOT_FREE_REQUESTED, 1, 0, 0, 3, 4000007);
    assert_event(&snapshot, 7, SNAPSHOT_OTHER, 0, 0, 0, 3, 4000000);
    snapshot_finish(&snapshot);
}

static void a_day_ends_at_midnight(void **state)
{
    (void)state;
    struct snapshot snapshot = read_log(HEADER "1,23:59:59.9,allocate,0x1000,1,0x0\n"
                                               /* A little back is no day */
                                               "2,23:59:59.8,allocate,0x2000,1,0x0\n"
                                               "1,00:00:00.1,free,0x1000,1,0x0\n"
                                               "1,00:00:00.0,free,0x2000,1,0x0\n");
    assert_event(&snapshot, 1, SNAPSHOT_ALLOC, 0x2000, 1, 0, 2, INT64_C(86399800000));
    assert_event(&snapshot, 2, SNAPSHOT_FREE_REQUESTED, 0x1000, 1, 0, 1, INT64_C(86400100000));
    assert_event(&snapshot, 3, SNAPSHOT_FREE_REQUESTED, 0x2000, 1, 0, 1, INT64_C(86400000000));
    snapshot_finish(&snapshot);
}

static void a_log_that_was_cut_off_loses_its_last_line(void **state)
{
    (void)state;
    struct snapshot snapshot =
        read_log(HEADER "1,01:00:00.0,allocate,0x1000,700,0x0\n1,01:00:00.1,fre");
    struct workload workload;
    assert_int_equal(snapshot.traces[0].event_count, 1);
    assert_true(workload_build(&snapshot, 0, &workload));
    assert_int_equal(workload.lost_count, 1);
    assert_int_equal(workload.thread_count, 1);
    assert_int_equal(workload.block_count, 1);
    workload_finish(&workload);
    snapshot_finish(&snapshot);
    /* Cut in its last field it reads as a whole: a stream that nobody else has. */
    snapshot = read_log(
        HEADER "1,01:00:00.0,allocate,0x1000,700,0x5581\n1,01:00:00.1,free,0x1000,700,0x55");
    assert_int_equal(snapshot.traces[0].event_count, 1);
    assert_int_equal(snapshot.stream_count, 2);
    assert_int_equal(snapshot.lost_lines, 1);
    snapshot_finish(&snapshot);
    snapshot = read_log(
        HEADER "1,01:00:00.0,allocate,0x1000,700,0x5581\n1,01:00:00.1,free,0x1000,700,0x5581");
    assert_int_equal(snapshot.traces[0].event_count, 2);
    assert_int_equal(snapshot.lost_lines, 0);
    snapshot_finish(&snapshot);
}

static void a_mark_of_utf8_may_come_first(void **state)
{
    (void)state;
    struct snapshot snapshot =
        read_log(RMM_CSV_MARK HEADER "1,01:00:00.0,allocate,0x1000,700,0x0\n");
    assert_int_equal(snapshot.traces[0].event_count, 1);
    snapshot_finish(&snapshot);
}

static void what_is_refused_is_named(void **state)
{
    (void)state;
    static char long_line[700];
    memcpy(long_line, HEADER, sizeof HEADER);
    memset(long_line + sizeof HEADER - 1, '7', 600);
    const struct {
        const char *log, *error;
    } bad[] = {
        {"Thread,Time,Action\n",
         "line 1: the header of an RMM log is " RMM_CSV_HEADER ", and nothing else"},
        {HEADER "1,01:00:00,allocate,0x1,5\n", "line 2: has 5 fields, where the header names 6"},
        {HEADER "1,01:00:00,allocate,0x1,5,0,0\n",
         "line 2: has 7 fields, where the header names 6"},
        {HEADER "\nx,01:00:00,allocate,0x1,5,0\n",
         "line 3: field Thread is \"x\", not a thread's number"},
        {HEADER "1,24:00:00,allocate,0x1,5,0\n",
         "line 2: field Time is \"24:00:00\", not a time as 15:47:02.841961"},
        {HEADER "1,01:00:00.1234567,allocate,0x1,5,0\n",
         "line 2: field Time is \"01:00:00.1234567\", not a time as 15:47:02.841961"},
        {HEADER "1,5:25,allocate,0x1,5,0\n",
         "line 2: field Time is \"5:25\", not a time as 15:47:02.841961"},
        {HEADER "1,,allocate,0x1,5,0\n",
         "line 2: field Time is \"\", not a time as 15:47:02.841961"},
        {HEADER "1,01:00:00,alloc\x01,0x1,5,0\n",
         "line 2: field Action is \"alloc?\", not allocate, free or allocate failure"},
        {HEADER "1,01:00:00,free,0x,5,0\n",
         "line 2: field Pointer is \"0x\", not an address as 0x7f8a40000000"},
        {HEADER "1,01:00:00,free,0x12345678901234567,5,0\n",
         "line 2: field Pointer is \"0x12345678901234567\", not an address as 0x7f8a40000000"},
        {HEADER "1,01:00:00,allocate,0x1,-5,0\n",
         "line 2: field Size is \"-5\", not a number of bytes"},
        {HEADER "1,01:00:00,allocate,0x1,18446744073709551616,0\n",
         "line 2: field Size is \"18446744073709551616\", not a number of bytes"},
        {HEADER "1,01:00:00,allocate,0xfffffffffffffff0,16,0\n",
         "line 2: field Size is \"16\", not within the address space"},
        {HEADER "1,01:00:00,allocate,0x1,5,stream\n",
         "line 2: field Stream is \"stream\", not a stream as 0x0"},
        {HEADER "1,01:00:00,01234567890123456789012345678901234567890123456789,0x1,5,0\n",
         "line 2: field Action is \"0123456789012345678901234567890123456789\"..., not allocate, "
         "free or allocate "
         "failure"},
        {long_line, "line 2: is longer than 512 bytes; no line of an RMM log is"},
    };
    for (size_t i = 0; i < COUNT(bad); i++) {
        struct snapshot snapshot;
        struct snapshot_error error;
        assert_false(snapshot_read_buffer(bad[i].log, strlen(bad[i].log), &snapshot, &error));
        assert_string_equal(error.text, bad[i].error);
        assert_int_equal(snapshot.event_count, 0);
    }
}

static void a_compressed_log_is_read_too(void **state)
{
    (void)state;
    static const char log[] = HEADER "1,01:00:00,allocate,0x1000,5,0x0\n";
    char compressed[512];
    size_t size = ZSTD_compress(compressed, sizeof compressed, log, sizeof log - 1, 1);
    struct snapshot snapshot;
    struct snapshot_error error;
    assert_false(ZSTD_isError(size));
    assert_true(snapshot_read_buffer(compressed, size, &snapshot, &error));
    assert_event(&snapshot, 0, SNAPSHOT_ALLOC, 0x1000, 5, 0, 1, INT64_C(3600000000));
    snapshot_finish(&snapshot);
}

static void threads_streams_and_failures_are_kept(void **state)
{
    (void)state;
    struct snapshot snapshot =
        read_log(HEADER "50,01:00:00.0,allocate,0x1000,1000,0xa\n"
                        "40,01:00:00.1,allocate,0x9000,2000,0xb\n"
                        "40,01:00:00.2,allocate failure,0x0,9999,0xb\n"
                        "40,01:00:00.3,free,0x1000,1000,0xb\n" /* another thread, another stream */
                        "50,01:00:00.4,free,0x9000,2000,0xb\n");
    struct workload workload;
    assert_true(workload_build(&snapshot, 0, &workload));
    assert_int_equal(workload.thread_count, 2);
    assert_int_equal(workload.stream_count, 2);
    assert_int_equal(workload.oom_count, 1);
    assert_int_equal(workload.moved_count, 1);
    assert_int_equal(workload.op_count, 7); /* a free completes itself */
    static const uint16_t threads[] = {0, 1, 1, 1, 1, 0, 0};
    static const uint8_t made[] = {WORKLOAD_ALLOC,    WORKLOAD_ALLOC,     WORKLOAD_TRY,
                                   WORKLOAD_FREE,     WORKLOAD_COMPLETED, WORKLOAD_FREE,
                                   WORKLOAD_COMPLETED};
    for (size_t i = 0; i < COUNT(made); i++) {
        assert_int_equal(workload.ops[i].action, made[i]);
        assert_int_equal(workload.ops[i].thread, threads[i]);
        assert_int_equal(workload.ops[i].stream, i == 3 ? 1 : WORKLOAD_NO_STREAM);
    }
    assert_int_equal(workload.ops[3].time, 300000000);
    workload_finish(&workload);
    snapshot_finish(&snapshot);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_layouts_of_the_years),
        cmocka_unit_test(a_day_ends_at_midnight),
        cmocka_unit_test(a_log_that_was_cut_off_loses_its_last_line),
        cmocka_unit_test(a_mark_of_utf8_may_come_first),
        cmocka_unit_test(what_is_refused_is_named),
        cmocka_unit_test(a_compressed_log_is_read_too),
        cmocka_unit_test(threads_streams_and_failures_are_kept),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
