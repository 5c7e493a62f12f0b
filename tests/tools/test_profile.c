/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* JSON of PyTorch's profiler: traces and memory timelines that PyTorch wrote, whose sums PyTorch
 * computed too; the layouts in small; and what is refused, by which words. */
#include "input/snapshot.h"
#include "input/workload.h"

#include "analysis/analysis.h"
#include "analysis/category.h"
#include "analysis/ranks.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define COUNT(array) (sizeof(array) / sizeof *(array))

static struct snapshot read_sample(const char *name)
{
    struct snapshot snapshot;
    struct snapshot_error error;
    char path[4096];
    snprintf(path, sizeof path, "%s/tests/tools/profiles/%s", getenv("TARN_SOURCE"), name);
    if (!snapshot_read_file(path, &snapshot, &error))
        fail_msg("%s: %s", path, error.text);
    assert_true(snapshot.profile);
    return snapshot;
}

static struct snapshot read_text(const char *text)
{
    struct snapshot snapshot;
    struct snapshot_error error;
    if (!snapshot_read_buffer(text, strlen(text), &snapshot, &error))
        fail_msg("%s", error.text);
    return snapshot;
}

/* Sums by tag at the peak. */
static void assert_sums(const struct snapshot *snapshot, uint64_t peak, size_t count,
                        const char *const *tags, const uint64_t *sums)
{
    struct analysis analysis;
    assert_true(analysis_build(snapshot, 0, &analysis));
    uint64_t found[16] = {0}, all = 0;
    for (size_t i = 0; i < analysis.block_count; i++) {
        const struct analysis_block *block = &analysis.blocks[i];
        if (block->begin > analysis.peak || block->freed <= analysis.peak)
            continue;
        all += block->size;
        for (size_t j = 0; j < count; j++)
            if (strcmp(snapshot_text(snapshot, block->tag), tags[j]) == 0)
                found[j] += block->size;
    }
    assert_int_equal(all, peak);
    for (size_t j = 0; j < count; j++)
        assert_int_equal(found[j], sums[j]);
    analysis_finish(&analysis);
}

/* PyTorch counts "Total Allocated" itself: the most of it is the peak. */
static void a_trace_has_what_pytorch_counted(void **state)
{
    (void)state;
    struct snapshot snapshot = read_sample("trace.json.zst");
    assert_int_equal(snapshot.trace_count, 1);
    assert_int_equal(snapshot.host_device, 1);
    assert_int_equal(snapshot.traces[0].event_count, 264);
    assert_sums(&snapshot, 380124, 0, NULL, NULL);
    size_t stacks = 0;
    bool found = false;
    for (size_t i = 0; i < snapshot.event_count; i++) {
        uint32_t stack = snapshot.events[i].stack;
        stacks += snapshot.events[i].action == SNAPSHOT_ALLOC && stack;
        for (; stack; stack = snapshot.stacks[stack].caller) {
            const struct snapshot_frame *frame = &snapshot.frames[snapshot.stacks[stack].frame];
            found |= strcmp(snapshot_text(&snapshot, frame->name), "step") == 0 &&
                     strcmp(snapshot_text(&snapshot, frame->filename), "record.py") == 0 &&
                     frame->line == 20;
        }
    }
    assert_int_equal(stacks, 138); /* each allocation */
    assert_true(found);
    snapshot_finish(&snapshot);
}

/* Of a GPU: the host's memory is listed too, and is not one more device to compare with. */
static void a_trace_of_a_gpu_has_one_device_and_the_host(void **state)
{
    static const struct report_rules rules = {.folding = {.depth = 1}};
    (void)state;
    struct report_file file;
    char path[4096];
    struct snapshot snapshot = read_sample("trace-cuda.json.zst");
    assert_int_equal(snapshot.trace_count, 2);
    assert_int_equal(snapshot.host_device, 2);
    assert_sums(&snapshot, 68574720, 0, NULL, NULL);
    assert_int_equal(snapshot.traces[0].reserved_most, 69206016);
    snapshot_finish(&snapshot);
    snprintf(path, sizeof path, "%s/tests/tools/profiles/trace-cuda.json.zst",
             getenv("TARN_SOURCE"));
    assert_true(report_file_open("report", path, -1, &rules, &file));
    assert_int_equal(file.count, 2);
    assert_false(ranks_are_compared(&file, 1));
    struct report_file pair[] = {file, file, file};
    struct ranks ranks;
    assert_true(ranks_make(pair, COUNT(pair), &ranks));
    assert_int_equal(ranks.count, 3);
    ranks_finish(&ranks);
    report_file_finish(&file);
}

static void timelines_of_a_gpu_have_the_sums_of_each_category(void **state)
{
    static const char *const tags[] = {"optimizer state", "parameters",  "gradients",
                                       "activations",     "temporaries", "unknown"};
    static const uint64_t sums[] = {166912, 83008, 83456, 0, 0, 68240896};
    (void)state;
    struct snapshot snapshot = read_sample("timeline-cuda.json.zst");
    assert_sums(&snapshot, 68574272, COUNT(tags), tags, sums);
    snapshot_finish(&snapshot);
    snapshot = read_sample("changes-cuda.json.zst");
    assert_sums(&snapshot, 68574272, COUNT(tags), tags, sums);
    snapshot_finish(&snapshot);
}

/* The rows of the timeline are sums that PyTorch made by category. */
static void timelines_have_the_sums_of_each_category(void **state)
{
    static const char *const tags[] = {"parameters",  "optimizer state", "inputs", "temporaries",
                                       "activations", "gradients",       "unknown"};
    static const uint64_t sums[] = {148544, 166032, 8, 4, 65536, 83008, 0};
    (void)state;
    struct snapshot snapshot = read_sample("timeline.json.zst");
    assert_sums(&snapshot, 463132, COUNT(tags), tags, sums);
    snapshot_finish(&snapshot);
    snapshot = read_sample("changes.json.zst");
    assert_sums(&snapshot, 463132, COUNT(tags), tags, sums);
    assert_true(snapshot.events[0].time_us > 0); /* of what was there before, too */
    snapshot_finish(&snapshot);
}

#define MEMORY(time, address, bytes, type, device, total, reserved)             \
    "{\"ph\":\"i\",\"name\":\"[memory]\",\"pid\":1,\"tid\":7,\"ts\":" time      \
    ",\"args\":{\"Addr\":" address ",\"Bytes\":" bytes ",\"Device Type\":" type \
    ",\"Device Id\":" device ",\"Total Allocated\":" total ",\"Total Reserved\":" reserved "}}"
#define SPAN(name, category, thread, time, length)                                              \
    "{\"args\":{\"x\":[1,{\"y\":null}]},\"ph\":\"X\",\"cat\":\"" category "\",\"name\":\"" name \
    "\",\"pid\":1,\"tid\":" thread ",\"ts\":" time ",\"dur\":" length "}"

/* Two devices and the host; events in another order than time's; what was there before. */
static void devices_and_the_host_are_apart(void **state)
{
    (void)state;
    struct snapshot snapshot = read_text("{\"schemaVersion\":1,\"traceEvents\":[" MEMORY(
        "20.5", "4096", "-512", "1", "1", "2560",
        "8192") "," MEMORY("10.25", "8192", "1024", "1", "1", "3072",
                           "4096") ",\n"
                                   "{\"ph\":\"i\",\"name\":\"[OutOfMemory]\",\"pid\":1,\"tid\":7,"
                                   "\"ts\":30,\"args\":{"
                                   "\"Bytes\":77,\"Device Type\":1,\"Device Id\":1}}," MEMORY(
                                       "11", "64", "100", "0", "-1", "100", "0") "]}\n");
    assert_int_equal(snapshot.trace_count, 3);
    assert_int_equal(snapshot.host_device, 3);
    assert_int_equal(snapshot.traces[0].event_count, 0);
    assert_int_equal(snapshot.traces[2].event_count, 1);
    assert_int_equal(snapshot.traces[2].events[0].size, 100);
    const struct snapshot_event *events = snapshot.traces[1].events;
    assert_int_equal(snapshot.traces[1].event_count, 4);
    assert_int_equal(snapshot.traces[1].reserved_most, 8192);
    /* 3072 with the first 1024; of the 2048 before it a free explains 512 */
    assert_int_equal(events[0].action, SNAPSHOT_ALLOC);
    assert_int_equal(events[0].size, 1536);
    assert_string_equal(snapshot_text(&snapshot, events[0].tag), "from before the profile");
    assert_int_equal(events[1].action, SNAPSHOT_ALLOC);
    assert_int_equal(events[1].time_us, 10);
    assert_int_equal(events[2].action, SNAPSHOT_FREE_REQUESTED);
    assert_int_equal(events[2].size, 512);
    assert_int_equal(events[3].action, SNAPSHOT_OOM);
    assert_int_equal(events[3].size, 77);
    struct workload workload;
    assert_true(workload_build(&snapshot, 1, &workload));
    assert_int_equal(workload.peak_requested, 3072);
    workload_finish(&workload);
    snapshot_finish(&snapshot);
}

/* Of an event the ranges that are open on its own thread, the outermost last. */
static void stacks_are_what_is_open_on_a_thread(void **state)
{
    static const struct {
        const char *name, *file;
        uint32_t line;
    } wanted[] = {{"aten::mm", "", 0}, {"forward", "a (b)/net.py", 41}, {"<built-in f", "", 0}};
    (void)state;
    struct snapshot snapshot = read_text("[" SPAN("aten::mm", "cpu_op", "7", "5", "3") "," SPAN(
        "aten::add", "cpu_op", "7", "1",
        "3") ",\n" SPAN("a (b)/net.py(41): forward", "python_function", "7", "2.5",
                        "90") "," SPAN("<built-in f at 0x7f00>", "python_function", "7", "0",
                                       "100") "," SPAN("aten::other", "cpu_op", "8", "0",
                                                       "100") "," SPAN("kernel", "kernel", "7", "0",
                                                                       "100") "," MEMORY("6",
                                                                                         "4096",
                                                                                         "1024",
                                                                                         "0", "-1",
                                                                                         "0",
                                                                                         "0") ",{"
                                                                                              "\"na"
                                                                                              "me\""
                                                                                              ":\"["
                                                                                              "memo"
                                                                                              "ry]"
                                                                                              "\","
                                                                                              "\"pi"
                                                                                              "d\":"
                                                                                              "1,"
                                                                                              "\"ti"
                                                                                              "d\":"
                                                                                              "8,"
                                                                                              "\"ts"
                                                                                              "\":"
                                                                                              "50,"
                                                                                              "\"ar"
                                                                                              "gs\""
                                                                                              ":{"
                                                                                              "\"By"
                                                                                              "tes"
                                                                                              "\":"
                                                                                              "7,"
                                                                                              "\"Ad"
                                                                                              "dr\""
                                                                                              ":1}}"
                                                                                              "]");
    uint32_t stack = snapshot.traces[0].events[0].stack;
    for (size_t i = 0; i < COUNT(wanted); i++) {
        assert_true(stack > 0);
        const struct snapshot_frame *frame = &snapshot.frames[snapshot.stacks[stack].frame];
        assert_string_equal(snapshot_text(&snapshot, frame->name), wanted[i].name);
        assert_string_equal(snapshot_text(&snapshot, frame->filename), wanted[i].file);
        assert_int_equal(frame->line, wanted[i].line);
        stack = snapshot.stacks[stack].caller;
    }
    assert_int_equal(stack, 0);
    stack = snapshot.traces[0].events[1].stack; /* of another thread */
    assert_string_equal(
        snapshot_text(&snapshot, snapshot.frames[snapshot.stacks[stack].frame].name),
        "aten::other");
    assert_int_equal(snapshot.stacks[stack].caller, 0);
    snapshot_finish(&snapshot);
}

/* A fall that no block of its size explains ends the newest ones and leaves a part. */
static void a_timeline_splits_what_falls(void **state)
{
    (void)state;
    struct snapshot snapshot = read_text("[[1,2,3],[[0,100,0,0,0,0,0,0,0],[0,100,0,0,0,60,0,0,0],"
                                         "[0,70,0,0,0,60,0,0,5]]]");
    static const struct {
        uint8_t action;
        uint64_t size;
        int64_t time;
    } wanted[] = {{SNAPSHOT_ALLOC, 100, 1},
                  {SNAPSHOT_ALLOC, 60, 2},
                  {SNAPSHOT_FREE_REQUESTED, 100, 3},
                  {SNAPSHOT_ALLOC, 70, 3},
                  {SNAPSHOT_ALLOC, 5, 3}};
    assert_int_equal(snapshot.event_count, COUNT(wanted));
    for (size_t i = 0; i < COUNT(wanted); i++) {
        assert_int_equal(snapshot.events[i].action, wanted[i].action);
        assert_int_equal(snapshot.events[i].size, wanted[i].size);
        assert_int_equal(snapshot.events[i].time_us, wanted[i].time);
    }
    assert_string_equal(snapshot_text(&snapshot, snapshot.events[4].tag), "unknown");
    snapshot_finish(&snapshot);
}

/* PyTorch wrote such strings: backslashes and control characters that nobody escaped. */
static void strings_need_not_be_right(void **state)
{
    (void)state;
    struct snapshot snapshot =
        read_text("{\"a\":\"C:\\Users\\new \\u00e9\\ud800\t\",\"b\":NaN,\"c\":-Infinity,"
                  "\"traceEvents\":[" MEMORY("10", "1", "1", "0", "-1", "0", "0") "]}");
    snapshot_finish(&snapshot);
}

static void what_is_refused_is_named(void **state)
{
    static char deep[200];
    static const struct {
        const char *text, *error;
    } bad[] = {
        {"{\"segments\": []}", "without the key traceEvents"},
        {"{\"traceEvents\":7}", "byte 15: traceEvents is no array"},
        {"{\"traceEvents\":[]}", "no memory events; profile_memory=True"},
        {"[]", "neither a trace nor a memory timeline"},
        {"[1]", "neither a trace nor a memory timeline"},
        {"[[\"a\"]]", "neither a trace nor a memory timeline"},
        {"[[],[]]", "the timeline has no memory"},
        {"[[1],[]]", "fewer rows than times"},
        {"[[],[[0,1,0,0,0,0,0,0,0]]]", "more rows than times"},
        {"[[1],[[0,1]]]", "a row of a timeline has 9 sums, and this one 2"},
        {"[[1],[[0,-1,0,0,0,0,0,0,0]]]", "below 0"},
        {"[[1,2,3]]", "a change of a timeline has 4 numbers, and this one 3"},
        {"[[1,9,3,0]]", "action 9 is not known"},
        {"[[1,2,3,8]]", "category 8 is not known"},
        {"[[1,4,-3,0]]", "the category \"parameters\" has less than is freed of it"},
        {"[[1,2,1152921504606846976,0]]", "beyond what can be counted"},
        {"[[1,2,99999999999999999999,0]]", "neither a trace nor a memory timeline"},
        {"{\"traceEvents\":[{\"name\":\"[memory]\",\"ts\":1}]}", "[memory] has no Bytes"},
        {"{\"traceEvents\":[{\"name\":\"[memory]\",\"args\":{\"Bytes\":1}}]}",
         "[memory] has no ts"},
        {"{\"traceEvents\":[{\"name\":\"[memory]\",\"ts\":1,\"args\":{\"Bytes\":1}}]}",
         "no Addr: PyTorch 1.10"},
        {"{\"traceEvents\":[" MEMORY("1", "1", "1", "1", "64", "0", "0") "]}",
         "Device Id that is not from 0 to 62"},
        {"{\"traceEvents\":[" MEMORY("1", "-1", "1", "1", "0", "0", "0") "]}",
         "beyond the end of the address space"},
        {"{\"traceEvents\":[{\"name\":\"[mem", "the file is cut short"},
        {"{\"traceEvents\":[", "the file is cut short"},
        {"{\"traceEvents\":[1 2]}", "'2', where a comma is expected"},
        {"{\"traceEvents\" []}", "'[', where a colon is expected"},
        {"{traceEvents:[]}", "'t', where a key is expected"},
        {"{\"a\":nope}", "\"nope\" is not a value of JSON"},
        {"{\"a\":\x01}", "0x01, where a value is expected"},
        {"{\"a\":}", "'}', where a value is expected"},
        {"[[1,2,3,0]]x", "'x', where the end is expected"},
        {deep, "more than 64 objects or arrays lie in each other"},
    };
    (void)state;
    memcpy(deep, "{\"a\":", 5);
    memset(deep + 5, '[', sizeof deep - 6);
    for (size_t i = 0; i < COUNT(bad); i++) {
        struct snapshot snapshot;
        struct snapshot_error error;
        assert_false(snapshot_read_buffer(bad[i].text, strlen(bad[i].text), &snapshot, &error));
        if (!strstr(error.text, bad[i].error) || strncmp(error.text, "byte ", 5) != 0)
            fail_msg("%s: \"%s\" has no \"%s\"", bad[i].text, error.text, bad[i].error);
        assert_int_equal(snapshot.event_count, 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_trace_has_what_pytorch_counted),
        cmocka_unit_test(timelines_have_the_sums_of_each_category),
        cmocka_unit_test(a_trace_of_a_gpu_has_one_device_and_the_host),
        cmocka_unit_test(timelines_of_a_gpu_have_the_sums_of_each_category),
        cmocka_unit_test(devices_and_the_host_are_apart),
        cmocka_unit_test(stacks_are_what_is_open_on_a_thread),
        cmocka_unit_test(a_timeline_splits_what_falls),
        cmocka_unit_test(strings_need_not_be_right),
        cmocka_unit_test(what_is_refused_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
