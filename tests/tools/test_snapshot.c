/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* The reader of snapshots: generated ones against what their generator counted, recorded ones where
 * there are any, and what is wrong, cut short, corrupted or hostile.
 *
 * TARN_TEST_DATA is the folder that make_snapshots.py filled; TARN_TRACES a colon-separated list of
 * folders with recorded snapshots, examples/traces unless set. */
#include "snapshot_test.h"

/* --- generated snapshots --- */

enum { FIELD_ACTIONS = 4, ACTION_COUNT = 10 };

/* The numbers of summary.txt, in its order, as the reader sees them. */
static size_t summarise(const struct snapshot *snapshot, uint64_t *field)
{
    uint64_t action[ACTION_COUNT] = {0}, states[3] = {0}, total = 0, requested = 0, address = 0,
             size = 0, streams = 0, pools = 0;
    uint64_t events = 0, last = 0;
    for (size_t i = 0; i < snapshot->trace_count; i++)
        for (size_t j = 0; j < snapshot->traces[i].event_count; j++) {
            const struct snapshot_event *event = &snapshot->traces[i].events[j];
            events++;
            action[event->action]++;
            address ^= event->address;
            size += event->size;
            streams ^= snapshot->streams[event->stream];
            pools += snapshot->pools[event->pool][0] + snapshot->pools[event->pool][1];
            if (event->time_us != SNAPSHOT_NO_TIME && (uint64_t)event->time_us > last)
                last = (uint64_t)event->time_us;
        }
    for (size_t i = 0; i < snapshot->segment_count; i++) {
        total += snapshot->segments[i].total_size;
        pools += snapshot->segments[i].pool[0] + snapshot->segments[i].pool[1];
    }
    for (size_t i = 0; i < snapshot->block_count; i++) {
        states[snapshot->blocks[i].state]++;
        requested += snapshot->blocks[i].requested_size;
    }

    size_t n = 0;
    field[n++] = snapshot->segment_count;
    field[n++] = snapshot->block_count;
    field[n++] = snapshot->trace_count;
    field[n++] = events;
    for (size_t i = 0; i < ACTION_COUNT; i++)
        field[n++] = action[i];
    field[n++] = states[SNAPSHOT_ACTIVE_ALLOCATED];
    field[n++] = states[SNAPSHOT_ACTIVE_PENDING_FREE];
    field[n++] = total;
    field[n++] = requested;
    field[n++] = address;
    field[n++] = size;
    field[n++] = streams;
    field[n++] = pools;
    field[n++] = last;
    return n;
}

static void generated(void **state)
{
    (void)state;
    char line[1024];
    size_t files = 0;
    FILE *summary = fopen(test_data("summary.txt"), "r");
    assert_non_null(summary);
    while (fgets(line, sizeof line, summary)) {
        char *rest, *name = strtok_r(line, " ", &rest);
        if (*name == '#')
            continue;
        struct snapshot snapshot;
        struct snapshot_error error;
        if (!snapshot_read_file(test_data(name), &snapshot, &error))
            fail_msg("%s: %s", name, error.text);
        uint64_t field[64];
        size_t count = summarise(&snapshot, field);
        for (size_t i = 0; i < count; i++) {
            char *word = strtok_r(NULL, " \n", &rest);
            if (!word || strtoull(word, NULL, 10) != field[i])
                fail_msg("%s: field %zu is %" PRIu64 ", not %s", name, i + 1, field[i],
                         word ? word : "there");
        }
        walk(&snapshot);
        snapshot_finish(&snapshot);
        files++;
    }
    fclose(summary);
    assert_true(files >= 16);
}

static void assert_same(const struct snapshot *one, const struct snapshot *two)
{
    assert_int_equal(one->block_count, two->block_count);
    for (size_t i = 0; i < one->event_count; i++) {
        const struct snapshot_event *a = &one->events[i], *b = &two->events[i];
        assert_true(a->address == b->address && a->size == b->size && a->stream == b->stream &&
                    a->time_us == b->time_us && a->pool == b->pool && a->stack == b->stack &&
                    a->tag == b->tag && a->thread == b->thread && a->action == b->action);
    }
    for (size_t i = 0; i < one->block_count; i++) {
        const struct snapshot_block *a = &one->blocks[i], *b = &two->blocks[i];
        assert_true(a->address == b->address && a->size == b->size &&
                    a->requested_size == b->requested_size && a->state == b->state);
    }
}

/* Reading from memory, and from memory compressed, gives the same as reading the file. */
static void buffers_and_zstd(void **state)
{
    (void)state;
    static const char *const names[] = {"streams.pickle", "expandable.pickle", "small-2.pickle"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        struct snapshot one, two, three;
        struct snapshot_error error;
        struct bytes bytes = load(test_data(names[i]));
        size_t bound = ZSTD_compressBound(bytes.size);
        void *compressed = malloc(bound);
        size_t size = ZSTD_compress(compressed, bound, bytes.data, bytes.size, 3);
        assert_false(ZSTD_isError(size));
        assert_true(snapshot_read_file(test_data(names[i]), &one, &error));
        assert_true(snapshot_read_buffer(bytes.data, bytes.size, &two, &error));
        assert_true(snapshot_read_buffer(compressed, size, &three, &error));
        assert_int_equal(one.event_count, two.event_count);
        assert_int_equal(one.event_count, three.event_count);
        assert_same(&one, &two);
        assert_same(&one, &three);
        snapshot_finish(&one);
        snapshot_finish(&two);
        snapshot_finish(&three);

        /* Some in each of the blocks, of 128 KiB, in which it comes. */
        for (size_t cut = 0; cut < size; cut += 1 + size / 60)
            assert_false(read_bytes(compressed, cut, &error));
        free(compressed);
        free(bytes.data);
    }
}

static void recorded(void **state)
{
    (void)state;
    const char *list = getenv("TARN_TRACES");
    char *folders = strdup(list ? list : "examples/traces"), *rest = NULL;
    size_t files = 0;
    for (char *folder = strtok_r(folders, ":", &rest); folder;
         folder = strtok_r(NULL, ":", &rest)) {
        DIR *open = opendir(folder);
        for (struct dirent *entry; open && (entry = readdir(open));) {
            const char *end = strrchr(entry->d_name, '.');
            if (!end || (strcmp(end, ".pickle") != 0 && strcmp(end, ".zst") != 0))
                continue;
            char path[4096];
            struct snapshot snapshot;
            struct snapshot_error error;
            snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
            if (!snapshot_read_file(path, &snapshot, &error))
                fail_msg("%s: %s", path, error.text);
            walk(&snapshot);
            snapshot_finish(&snapshot);
            files++;
        }
        if (open)
            closedir(open);
    }
    free(folders);
    if (!files)
        skip();
}

/* --- what is wrong --- */

static void expect(const char *literal, const char *wanted)
{
    struct writer writer = {.size = 0};
    struct snapshot_error error = {{0}};
    put(&writer, "\x80\x02", 2);
    write_literal(&writer, literal);
    put(&writer, ".", 1);
    bool done = read_bytes(writer.data, writer.size, &error);
    if (!wanted && !done)
        fail_msg("%s: %s", literal, error.text);
    if (wanted) {
        assert_false(done);
        assert_string_equal(strchr(error.text, ':') + 2, wanted);
    }
}

#define SEGMENT(rest) \
    "{'segments': [{'device': 0, 'address': 4096, 'total_size': 1024, 'stream': 0, " rest "}]}"
#define BLOCK(rest) SEGMENT("'blocks': [{'size': 512, 'state': 'inactive'}, {" rest "}]")
#define EVENT(rest)                                                                                \
    "{'segments': [], 'device_traces': [[], [{'action': 'alloc', 'addr': 1, 'size': 2, 'stream': " \
    "3}, {" rest "}]]}"

static void errors_name_the_place(void **state)
{
    (void)state;
    expect("[]", "the pickle holds a list; a memory snapshot is a dict");
    expect(
        "{}",
        "the dict has no key segments and no device_traces: this pickle is not a memory snapshot");
    expect("{'segments': 5}", "segments is an integer, not a list");
    expect("{'segments': [5, 5]}", "segments[0] is an integer, not a segment");
    expect("{'segments': [[]]}", "segments[0] is a list, not a segment");
    expect("{'segments': []}", NULL);
    expect("{'segments': [], 'device_traces': None}", NULL);

    expect(SEGMENT("'blocks': []"), NULL);
    expect(SEGMENT("'blocks': [], 'is_expandable': True, 'segment_pool_id': (1, 2)"), NULL);
    expect(SEGMENT(""), "segments[0] has no key blocks");
    expect(SEGMENT("'blocks': 7"), "segments[0].blocks is an integer, not a list");
    expect(SEGMENT("'blocks': [{}]"), "segments[0].blocks holds 1 items that are not blocks");
    expect(SEGMENT("'blocks': [[]]"), "segments[0].blocks[0] is a list, not a block");
    expect(SEGMENT("'blocks': [], 'device': -1"), "segments[0].device is negative");
    expect(SEGMENT("'blocks': [], 'device': 4096"),
           "segments[0].device is 4096; at most 4095 are read");
    expect(SEGMENT("'blocks': [], 'total_size': 18446744073709551616"),
           "segments[0].total_size does not fit in 64 bits");
    expect(SEGMENT("'blocks': [], 'total_size': 18446744073709551615"),
           "segments[0].total_size goes beyond the end of the address space");
    expect(SEGMENT("'blocks': [], 'active_size': 'x'"),
           "segments[0].active_size is a text, not an integer");
    expect(SEGMENT("'blocks': [], 'segment_type': 'huge'"),
           "segments[0].segment_type is neither large nor small");
    expect(SEGMENT("'blocks': [], 'is_expandable': 1"),
           "segments[0].is_expandable is an integer, not a bool");
    expect(SEGMENT("'blocks': [], 'segment_pool_id': (1, -2)"),
           "segments[0].segment_pool_id has a negative part");
    expect(SEGMENT("'blocks': [], 'segment_pool_id': [1, 2]"), NULL); /* as JSON has it */
    expect(SEGMENT("'blocks': [], 'segment_pool_id': [1, -2]"),
           "segments[0].segment_pool_id has a negative part");
    expect(SEGMENT("'blocks': [], 'segment_pool_id': [1, 'x', 2]"),
           "segments[0].segment_pool_id is not a pair of two integers of 64 bits");
    expect(SEGMENT("'blocks': [], 'segment_pool_id': [1]"),
           "segments[0].segment_pool_id is not a pair of two integers of 64 bits");
    expect(SEGMENT("'blocks': [], 'segment_pool_id': (1, 2, 3)"),
           "segments[0].segment_pool_id is not a pair of two integers of 64 bits");

    expect(BLOCK("'size': 512, 'state': 'active_allocated', 'requested_size': 100"), NULL);
    expect(BLOCK("'size': 512, 'state': 'active_awaiting_free', 'requested_size': 100"), NULL);
    expect(BLOCK("'state': 'inactive'"), "segments[0].blocks[1] has no key size");
    expect(BLOCK("'size': 512"), "segments[0].blocks[1] has no key state");
    expect(BLOCK("'size': -512, 'state': 'inactive'"), "segments[0].blocks[1].size is negative");
    expect(
        BLOCK("'size': 512, 'state': 'lost'"),
        "segments[0].blocks[1].state is none of inactive, active_allocated, active_pending_free");
    expect(BLOCK("'size': 1024, 'state': 'inactive'"),
           "segments[0].blocks[1] at 0x1200, 1024 bytes, does not lie between 0x1200 and the "
           "segment's end, 0x1400");
    expect(BLOCK("'size': 18446744073709551615, 'state': 'inactive'"),
           "segments[0].blocks[1] at 0x1200, 18446744073709551615 bytes, does not lie between "
           "0x1200 and the segment's "
           "end, "
           "0x1400");
    expect(BLOCK("'size': 512, 'state': 'inactive', 'address': 4096"),
           "segments[0].blocks[1] at 0x1000, 512 bytes, does not lie between 0x1200 and the "
           "segment's end, 0x1400");
    expect(BLOCK("'size': 512, 'state': 'active_allocated', 'requested_size': 513"),
           "segments[0].blocks[1].requested_size is 513, more than the block's 512 bytes");

    expect(EVENT("'action': 'free_requested', 'addr': 1, 'size': 2, 'stream': 3"), NULL);
    expect(EVENT("'action': 'of the future'"), NULL);
    expect(EVENT("'action': 'oom', 'device_free': 5, 'size': 2, 'stream': 3"), NULL);
    expect(EVENT(""), "device_traces[1] holds 1 items that are no trace event");
    expect(EVENT("'addr': 1"), "device_traces[1][1] has no key action");
    expect(EVENT("'action': 7"), "device_traces[1][1].action is an integer, not a text");
    expect(EVENT("'action': 'alloc', 'size': 2, 'stream': 3"),
           "device_traces[1][1] has no key addr");
    expect(EVENT("'action': 'alloc', 'addr': 1, 'stream': 3"),
           "device_traces[1][1] has no key size");
    expect(EVENT("'action': 'alloc', 'addr': 1, 'size': 2"),
           "device_traces[1][1] has no key stream");
    expect(EVENT("'action': 'alloc', 'addr': 1, 'size': -2, 'stream': 3"),
           "device_traces[1][1].size is negative");
    expect(EVENT("'action': 'alloc', 'addr': 1, 'size': 18446744073709551615, 'stream': 3"),
           "device_traces[1][1].size goes beyond the end of the address space");
    expect(
        EVENT(
            "'action': 'alloc', 'addr': 1, 'size': 2, 'stream': 3, 'time_us': 9223372036854775808"),
        "device_traces[1][1].time_us does not fit in 63 bits and a sign");
    expect(EVENT("'action': 'x', 'addr': 1, 'size': 2, 'stream': [[]]"),
           "device_traces[1][1].stream is a list, not an integer");
    expect("{'segments': [], 'device_traces': [5]}", "device_traces[0] is an integer, not a list");
    expect("{'segments': [], 'device_traces': [{'action': 'x'}]}",
           "device_traces[0] is a dict, not a list");
    expect("{'segments': [], 'device_traces': [[[]]]}",
           "device_traces[0][0] is a list, not a dict");
}

/* The byte is that of the value. */
static void errors_name_the_byte(void **state)
{
    (void)state;
    static const char data[] = "\x80\x02}(U\x08segments](}(U\x06"
                               "deviceJ\xff\xff\xff\xffueu.";
    struct snapshot_error error;
    assert_false(read_bytes(data, sizeof data - 1, &error));
    assert_string_equal(error.text, "byte 26: segments[0].device is negative");
}

/* The function that a stack ends in. */
static const char *innermost(const struct snapshot *snapshot, uint32_t stack)
{
    return stack ? snapshot_text(snapshot, snapshot->frames[snapshot->stacks[stack].frame].name)
                 : "none";
}

/* Of the histories that an old layout has, each block's stack is that of the layout of today. */
static void stacks_in_histories(void **state)
{
    (void)state;
    struct snapshot old, now;
    struct snapshot_error error;
    size_t stacks = 0;
    if (!snapshot_read_file(test_data("old.pickle"), &old, &error) ||
        !snapshot_read_file(test_data("state.pickle"), &now, &error))
        fail_msg("%s", error.text);
    assert_true(old.before_expandable && !now.before_expandable);
    assert_int_equal(old.block_count, now.block_count);
    for (size_t i = 0; i < now.block_count; i++) {
        bool used = now.blocks[i].state != SNAPSHOT_INACTIVE;
        assert_string_equal(innermost(&old, old.blocks[i].stack),
                            innermost(&now, used ? now.blocks[i].stack : 0));
        stacks += used && now.blocks[i].stack;
    }
    assert_true(stacks > 100);
    snapshot_finish(&old);
    snapshot_finish(&now);
}

/* What old layouts lack is filled in. */
static void old_layout(void **state)
{
    (void)state;
    struct writer writer = {.size = 0};
    struct snapshot snapshot;
    struct snapshot_error error;
    put(&writer, "\x80\x02", 2);
    write_literal(
        &writer,
        "{'segments': [{'device': 1, 'address': 4096, 'total_size': 2048, 'stream': 9, 'blocks': ["
        "{'size': 512, 'state': 'active_allocated'}, {'size': 1024, 'state': 'inactive', "
        "'requested_size': 7}, "
        "{'size': 512, 'state': 'active_pending_free', 'requested_size': 3, 'history': ["
        "{'addr': 5632, 'frames': [{'name': 'now', 'filename': 'a.py', 'line': 7}]}, "
        "{'addr': 5632, 'frames': [{'name': 'before', 'filename': 'a.py', 'line': 8}]}]}]}], "
        "'device_traces': [[{'action': 'oom', 'device_free': 77, 'size': 5, 'stream': 6}]]}");
    put(&writer, ".", 1);
    if (!snapshot_read_buffer(writer.data, writer.size, &snapshot, &error))
        fail_msg("%s", error.text);

    const struct snapshot_segment *segment = &snapshot.segments[0];
    assert_int_equal(segment->device, 1);
    assert_int_equal(segment->stream, 9);
    assert_false(segment->large || segment->expandable || segment->pool[0] || segment->pool[1]);
    assert_int_equal(segment->allocated_size, 512);
    assert_int_equal(segment->active_size, 1024);
    assert_int_equal(segment->requested_size, 515);
    assert_int_equal(snapshot.block_count, 3);
    assert_int_equal(snapshot.blocks[1].address, 4096 + 512);
    assert_int_equal(snapshot.blocks[2].address, 4096 + 1536);
    assert_int_equal(snapshot.blocks[0].requested_size, 512);
    assert_int_equal(snapshot.blocks[1].requested_size, 0);
    assert_int_equal(snapshot.blocks[2].requested_size, 3);
    assert_false(snapshot.blocks[0].stack || snapshot.blocks[1].stack);
    /* Its last owner is the first */
    assert_string_equal(innermost(&snapshot, snapshot.blocks[2].stack), "now");
    const struct snapshot_event *event = &snapshot.traces[0].events[0];
    assert_int_equal(event->action, SNAPSHOT_OOM);
    assert_int_equal(event->address, 77);
    assert_true(event->time_us == SNAPSHOT_NO_TIME && !event->pool &&
                snapshot.streams[event->stream] == 6);
    snapshot_finish(&snapshot);
}

/* What PyTorch's files have besides numbers: stacks, each stored once, and texts. */
static void stacks_and_texts(void **state)
{
    (void)state;
    struct writer writer = {.size = 0};
    struct snapshot snapshot;
    struct snapshot_error error;
    put(&writer, "\x80\x02}(", 4);
    write_literal(&writer, "'segments': [], 'device_traces'");
    put(&writer, "](](", 4);
    write_literal(&writer, "{'action': 'alloc', 'addr': 1, 'size': 10, 'stream': 3, "
                           "'user_metadata': 'step 1/size', 'thread': 4, "
                           "'frames': [{'name': 'inner', 'filename': 'a.py', 'line': 7}, {'name': "
                           "'outer', 'filename': 'b.py', "
                           "'line': 9}]}");
    write_literal(
        &writer, "{'action': 'alloc', 'addr': 9, 'size': 10, 'stream': 3, 'user_metadata': 'size', "
                 "'frames': [{'name': 'inner', 'filename': 'a.py', 'line': 7}, {'name': 'outer', "
                 "'filename': 'b.py', "
                 "'line': 9}]}");
    write_literal(&writer, "{'action': 'alloc', 'addr': 19, 'size': 10, 'stream': 0, "
                           "'user_metadata': 'x\x1b\xc3\xa9\xff"
                           "\xe2\x80\xae\xe2\x80\x8d\xd8\x9c\xe2\x81\xa6', "
                           "'frames': [{'name': 'other', 'filename': 'a.py', 'line': -7}, {'name': "
                           "'outer', 'filename': 'b.py', "
                           "'line': 9}]}");
    write_literal(&writer, "{'action': 'alloc', 'addr': 29, 'size': 10, 'stream': 0, 'frames': "
                           "[5], 'user_metadata': 5}");
    put(&writer, "eeu.", 4);
    if (!snapshot_read_buffer(writer.data, writer.size, &snapshot, &error))
        fail_msg("%s", error.text);
    const struct snapshot_event *events = snapshot.traces[0].events;
    assert_int_equal(snapshot.traces[0].event_count, 4);
    assert_string_equal(snapshot_text(&snapshot, events[0].tag), "step 1/size");
    assert_string_equal(snapshot_text(&snapshot, events[1].tag), "size");
    assert_string_equal(snapshot_text(&snapshot, events[2].tag),
                        "x?\xc3\xa9????\xe2\x80\x8d?????"); /* but the joiner */
    assert_int_equal(events[0].thread, 4);
    assert_int_equal(snapshot.streams[events[0].stream], 3);
    assert_int_equal(snapshot.streams[events[2].stream], 0);
    assert_int_equal(events[2].stream, 0);

    assert_int_equal(events[0].stack, events[1].stack);
    assert_int_equal(snapshot.frame_count, 3);
    assert_int_equal(snapshot.stack_count, 4); /* none, outer, outer > inner, outer > other */
    const struct snapshot_stack *stack = &snapshot.stacks[events[0].stack],
                                *other = &snapshot.stacks[events[2].stack];
    assert_string_equal(snapshot_text(&snapshot, snapshot.frames[stack->frame].name), "inner");
    assert_string_equal(snapshot_text(&snapshot, snapshot.frames[stack->frame].filename), "a.py");
    assert_int_equal(snapshot.frames[stack->frame].line, 7);
    assert_int_equal(snapshot.frames[other->frame].line, 0);
    assert_int_equal(stack->caller, other->caller);
    assert_string_equal(
        snapshot_text(&snapshot, snapshot.frames[snapshot.stacks[stack->caller].frame].name),
        "outer");
    assert_int_equal(snapshot.stacks[stack->caller].caller, 0);
    assert_true(!events[3].stack && !events[3].tag && !events[3].thread);
    snapshot_finish(&snapshot);
}

/* Everything that the key "tarn" adds. */
static void tarns_own(void **state)
{
    (void)state;
    struct snapshot snapshot;
    struct snapshot_error error;
    if (!snapshot_read_file(test_data("tarn.pickle"), &snapshot, &error))
        fail_msg("%s", error.text);
    const struct snapshot_tarn *tarn = &snapshot.tarn;
    assert_true(tarn->there);
    assert_string_equal(snapshot_text(&snapshot, tarn->library), "tarn 9.8.7");
    assert_string_equal(snapshot_text(&snapshot, tarn->driver), "host");
    assert_true(tarn->taken_ns == INT64_C(1750000000000000005));
    assert_int_equal(tarn->overwritten, 3);
    assert_int_equal(tarn->device_count, 2);
    assert_string_equal(snapshot_text(&snapshot, tarn->devices[1].name), "device \xc3\xa9 1");
    assert_true(tarn->devices[0].total == UINT64_C(8) << 30 &&
                tarn->devices[0].free == UINT64_C(1) << 30 &&
                tarn->devices[0].reserved == UINT64_C(7) << 30 &&
                tarn->devices[0].limit == UINT64_C(6) << 30);
    assert_true(tarn->devices[1].limit == SNAPSHOT_NO_LIMIT);
    assert_int_equal(tarn->pool_count, 4);
    assert_int_equal(tarn->pools[3].device, 1);
    assert_int_equal(snapshot.pools[tarn->pools[3].pool][1], 1);
    assert_true(tarn->pools[3].suspended && !tarn->pools[2].suspended && !tarn->pools[3].held);
    assert_true(tarn->pools[0].reserved == 100 && tarn->pools[0].allocated == 50 &&
                tarn->pools[0].active == 60 && tarn->pools[0].waiting == 10);
    assert_true(tarn->pools[3].of_graphs && !tarn->pools[2].of_graphs);
    assert_int_equal(tarn->graph_count, 3);
    const struct snapshot_graph *graph = &tarn->graphs[0];
    assert_true(graph->number == 3 && graph->device == 0 && graph->blocks == 5 &&
                graph->bytes == UINT64_C(5) << 20 && graph->gone == 2 &&
                graph->gone_bytes == UINT64_C(2) << 20);
    assert_true(graph->pool == 0 && snapshot.pools[graph[2].pool][1] == 1 && graph[2].device == 1);
    assert_int_equal(tarn->handle_count, 1);
    assert_string_equal(snapshot_text(&snapshot, tarn->handles[0].library), "cublas");
    assert_true(tarn->handles[0].count == 4 && tarn->handles[0].in_use == 1);
    assert_int_equal(tarn->workspace_count, 1);
    assert_true(tarn->workspaces[0].size == UINT64_C(32) << 20 &&
                tarn->workspaces[0].address == 0x7f0000000000 &&
                snapshot.streams[tarn->workspaces[0].stream] == 0x5581a0c3d2e0);
    assert_int_equal(tarn->thread_count, 3);
    assert_int_equal(tarn->threads[1].number, 2);
    assert_string_equal(snapshot_text(&snapshot, tarn->threads[1].name), "loader");
    assert_int_equal(snapshot.traces[0].exact_from, 17);

    const struct snapshot_mark *first = &tarn->marks[0], *last = &tarn->marks[tarn->mark_count - 1];
    size_t marks = 0;
    for (size_t i = 0; i < snapshot.trace_count; i++)
        marks += (snapshot.traces[i].event_count + 49) / 50 * 2 + 4;
    assert_int_equal(tarn->mark_count, marks);
    assert_int_equal(first->kind, SNAPSHOT_RECORD_STREAM);
    assert_int_equal(first->value, snapshot.traces[0].events[0].address);
    assert_int_equal(first->thread, 1);
    assert_int_equal(first[1].kind, SNAPSHOT_WAIT);
    assert_int_equal(snapshot.streams[first[1].other], 0x5581a0c3d2e0);
    assert_int_equal(last->kind, SNAPSHOT_MARK_OTHER);
    assert_int_equal(last->device, 1);
    assert_int_equal(last->at, snapshot.traces[1].event_count);
    assert_int_equal(last[-1].kind, SNAPSHOT_CAPTURE_BEGIN);
    assert_int_equal(last[-1].value, 7);
    assert_int_equal(last[-2].kind, SNAPSHOT_SCOPE_BEGIN);
    assert_string_equal(snapshot_text(&snapshot, last[-2].text), "thread");
    assert_int_equal(snapshot.pools[last[-2].pool][1], 1);
    assert_string_equal(snapshot_text(&snapshot, last[-3].text), "step 2");

    size_t tagged = 0;
    for (size_t i = 0; i < snapshot.block_count; i++)
        tagged += !strcmp(snapshot_text(&snapshot, snapshot.blocks[i].tag), "step 2/forward/mlp");
    assert_true(tagged > 0);
    assert_int_equal(snapshot.traces[0].events[1].thread, 2);
    snapshot_finish(&snapshot);
}

#define TARN(rest) "{'segments': [], 'tarn': {'version': 1, " rest "}}"
#define MARK(rest)                                                                                 \
    "{'segments': [], 'device_traces': [[], [{'action': 'x'}]], 'tarn': {'version': 1, 'events': " \
    "[{'kind': "                                                                                   \
    "'wait', " rest "}]}}"

static void errors_in_tarns_own(void **state)
{
    (void)state;
    expect("{'segments': [], 'tarn': 5}", "tarn is an integer, not a dict");
    expect("{'segments': [], 'tarn': {'library': 'x'}}", "tarn has no key version");
    expect("{'segments': [], 'tarn': {'version': 2}}",
           "tarn.version is 2, and this program reads 1: it takes the tarn that wrote the file");
    expect(TARN("'of the future': [5]"), NULL);
    expect(TARN("'devices': 5"), "tarn.devices is an integer, not a list");
    expect(TARN("'devices': [5]"), "tarn.devices[0] is an integer, not a dict of this list");
    expect(TARN("'devices': [{'name': 'x', 'total': -1}]"), "tarn.devices[0].total is negative");
    expect(TARN("'pools': [{'device': 0, 'id': 5}]"),
           "tarn.pools[0].id is not a pair of two integers of 64 bits");
    expect(TARN("'pools': [{'device': 0, 'held': 5}]"),
           "tarn.pools[0].held is an integer, not a bool");
    expect(TARN("'graphs': [{'device': 0, 'pool_id': (0, 0), 'gone': -1}]"),
           "tarn.graphs[0].gone is negative");
    expect(TARN("'handles': [{'device': 4096}]"),
           "tarn.handles[0].device is 4096; at most 4095 are read");
    expect(TARN("'workspaces': [{'size': 1}]"), "tarn.workspaces[0] has no key device");
    expect(TARN("'threads': [{'number': 4294967296}]"),
           "tarn.threads[0].number does not fit in 32 bits");
    expect(TARN("'exact_from': 'x'"), "tarn.exact_from is a text, not a list");
    expect(MARK("'device': 1, 'at': 1"), NULL);
    expect(MARK("'device': 1, 'at': 2"),
           "tarn.events[0].at is 2, where the trace of device 1 has 1 events");
    expect(MARK("'device': 1"), "tarn.events[0] has no key at");
    expect(MARK("'at': 1"), "tarn.events[0] has no key device");
    expect(MARK("'device': 1, 'at': 1}, {'kind': 'x', 'device': 1, 'at': 0"),
           "tarn.events[1].at is 0, less than 1 of the one before it on device 1");
    expect(TARN("'events': [{'action': 'x'}]"), "tarn.events[0] is not a separate event");
}

/* The same events for two devices, and an event twice: legal, and read as Python would. */
static void shared_parts(void **state)
{
    (void)state;
    struct writer writer = {.size = 0};
    struct snapshot snapshot;
    struct snapshot_error error;
    put(&writer, "\x80\x02", 2);
    put(&writer, "}(", 2);
    write_literal(&writer, "'segments': [], 'device_traces'");
    put(&writer, "](](", 4);
    write_literal(&writer, "{'action': 'alloc', 'addr': 1, 'size': 10, 'stream': 3}");
    put(&writer, "q\x01", 2);
    write_literal(&writer, "{'action': 'alloc', 'addr': 2, 'size': 20, 'stream': 3}");
    put(&writer, "h\x01", 2);
    put(&writer,
        "eq\x02h\x02](h\x01h\x01"
        "eeu.",
        15);
    if (!snapshot_read_buffer(writer.data, writer.size, &snapshot, &error))
        fail_msg("%s", error.text);
    assert_int_equal(snapshot.trace_count, 3);
    for (size_t i = 0; i < 2; i++) {
        assert_int_equal(snapshot.traces[i].event_count, 3);
        assert_int_equal(snapshot.traces[i].events[0].size, 10);
        assert_int_equal(snapshot.traces[i].events[1].size, 20);
        assert_int_equal(snapshot.traces[i].events[2].size, 10);
    }
    assert_int_equal(snapshot.traces[2].event_count, 2);
    assert_int_equal(snapshot.traces[2].events[1].size, 10);
    snapshot_finish(&snapshot);
}

static void invalid_files(void **state)
{
    (void)state;
    struct snapshot snapshot;
    struct snapshot_error error;
    assert_false(snapshot_read_file("/nowhere/at/all", &snapshot, &error));
    assert_string_equal(error.text, "cannot open: No such file or directory");
    assert_false(snapshot_read_file("/", &snapshot, &error));
    assert_string_equal(error.text, "byte 0: this is a folder, not a file");
    assert_false(snapshot_read_file("/dev/null", &snapshot, &error));
    assert_string_equal(error.text, "byte 0: the file is empty");
    assert_false(snapshot_read_buffer(NULL, 0, &snapshot, &error));
    assert_string_equal(error.text, "byte 0: the file is empty");
    assert_false(snapshot.segments || snapshot.segment_count);
    snapshot_finish(&snapshot);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(generated),
        cmocka_unit_test(buffers_and_zstd),
        cmocka_unit_test(recorded),
        cmocka_unit_test(errors_name_the_place),
        cmocka_unit_test(errors_name_the_byte),
        cmocka_unit_test(stacks_in_histories),
        cmocka_unit_test(old_layout),
        cmocka_unit_test(stacks_and_texts),
        cmocka_unit_test(tarns_own),
        cmocka_unit_test(errors_in_tarns_own),
        cmocka_unit_test(shared_parts),
        cmocka_unit_test(invalid_files),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
