/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* tarn's public API over the CUDA driver, on the simulated libcuda: random blocks on many streams,
 * devices and threads, filled and read back by queued work, so that memory that is given out too
 * early, twice, or unmapped shows; captures; and the program's current context. TARN_SEED chooses
 * the sequence. */
#include "driver/cuda_test.h"

#include <inttypes.h>
#include <pthread.h>
#include <tarn/tarn.h>

#define DEVICES 2
#define STREAMS 3 /* a device and thread */
#define BLOCKS 96
#define STEPS 1500
#define EDGE 64 /* bytes that are filled at both ends of a block */

struct block {
    unsigned char *pointer;
    size_t size;
    int device, stream;
    unsigned char pattern;
};

struct worker {
    uint64_t random;
    tarn_stream streams[DEVICES][STREAMS];
    struct block blocks[BLOCKS];
    unsigned char read[BLOCKS][2 * EDGE];
    uint64_t made, full;
};

static uint64_t below(struct worker *w, uint64_t n)
{
    w->random ^= w->random << 13;
    w->random ^= w->random >> 7;
    w->random ^= w->random << 17;
    return w->random % n;
}

static driver_stream native_of(tarn_stream stream)
{
    void *native = NULL;
    MUST(tarn_stream_native_get(stream, &native) == TARN_OK);
    return native;
}

static size_t edge_of(const struct block *block)
{
    return block->size < EDGE ? block->size : EDGE;
}

static void fill(struct worker *w, const struct block *block)
{
    driver_stream native = native_of(w->streams[block->device][block->stream]);
    uintptr_t start = (uintptr_t)block->pointer;
    size_t edge = edge_of(block);
    MUST(driver->set(block->device, start, block->pattern, edge, native) == TARN_OK);
    MUST(driver->set(block->device, start + block->size - edge, block->pattern, edge, native) ==
         TARN_OK);
}

/* Reads both ends back on a stream, in queued work, and frees the block before that has run. */
static void read_and_free(struct worker *w, int number, int stream)
{
    struct block *block = &w->blocks[number];
    tarn_stream own = w->streams[block->device][block->stream],
                reader = w->streams[block->device][stream];
    uintptr_t start = (uintptr_t)block->pointer;
    size_t edge = edge_of(block);
    if (reader != own) {
        tarn_event *event = NULL;
        MUST(tarn_event_create(block->device, &event) == TARN_OK);
        MUST(tarn_event_record(event, own) == TARN_OK);
        MUST(tarn_stream_wait(reader, event) == TARN_OK);
        MUST(tarn_event_destroy(event) == TARN_OK);
    }
    uintptr_t to = (uintptr_t)w->read[number];
    MUST(driver->copy(block->device, to, start, edge, native_of(reader)) == TARN_OK);
    MUST(driver->copy(block->device, to + EDGE, start + block->size - edge, edge,
                      native_of(reader)) == TARN_OK);
    if (reader != own && below(w, 2)) {
        MUST(tarn_free_on(block->pointer, reader) == TARN_OK);
    } else {
        if (reader != own)
            MUST(tarn_record_stream(block->pointer, reader) == TARN_OK);
        MUST(tarn_free(block->pointer) == TARN_OK);
    }
    MUST(tarn_stream_synchronize(reader) == TARN_OK);
    for (size_t i = 0; i < edge; i++)
        MUST(w->read[number][i] == block->pattern && w->read[number][EDGE + i] == block->pattern);
    block->pointer = NULL;
}

static void step(struct worker *w)
{
    int number = (int)below(w, BLOCKS);
    struct block *block = &w->blocks[number];
    if (block->pointer) {
        read_and_free(w, number, (int)below(w, STREAMS));
        return;
    }
    block->device = (int)below(w, DEVICES);
    block->stream = (int)below(w, STREAMS);
    block->size = 1 + (size_t)below(w, below(w, 4) ? 30000 : 4 * MIB);
    block->pattern = (unsigned char)(1 + below(w, 255));
    tarn_status status = tarn_alloc_on(w->streams[block->device][block->stream], block->size,
                                       (void **)&block->pointer);
    if (status == TARN_ERROR_OUT_OF_MEMORY) {
        w->full++;
        block->pointer = NULL;
        return;
    }
    MUST(status == TARN_OK);
    w->made++;
    fill(w, block);
}

static void *work(void *argument)
{
    struct worker *w = argument;
    for (int device = 0; device < DEVICES; device++)
        for (int i = 0; i < STREAMS; i++)
            MUST(tarn_stream_lease(device, -i, &w->streams[device][i]) == TARN_OK);
    for (int i = 0; i < STEPS; i++)
        step(w);
    for (int i = 0; i < BLOCKS; i++)
        if (w->blocks[i].pointer)
            read_and_free(w, i, w->blocks[i].stream);
    for (int device = 0; device < DEVICES; device++)
        for (int i = 0; i < STREAMS; i++)
            MUST(tarn_stream_return(w->streams[device][i]) == TARN_OK);
    MUST(current_context() == NULL);
    return NULL;
}

static void random_blocks_keep_their_contents(void **state)
{
    (void)state;
    static struct worker workers[3];
    pthread_t threads[3];
    const char *seed = getenv("TARN_SEED");
    uint64_t start = seed ? strtoull(seed, NULL, 0) : 20260101;
    for (int i = 0; i < 3; i++) {
        workers[i] = (struct worker){.random = start * 2654435761u + (uint64_t)i + 1};
        assert_int_equal(pthread_create(&threads[i], NULL, work, &workers[i]), 0);
    }
    uint64_t made = 0, full = 0;
    for (int i = 0; i < 3; i++) {
        pthread_join(threads[i], NULL);
        made += workers[i].made;
        full += workers[i].full;
    }
    print_message("seed %" PRIu64 ": %" PRIu64 " blocks, %" PRIu64 " found no memory\n", start,
                  made, full);
    assert_true(made > STEPS);
    for (int device = 0; device < DEVICES; device++) {
        size_t available = 0, total = 0;
        assert_ok(tarn_device_trim(device, 0));
        assert_ok(tarn_device_memory_get(device, &available, &total));
        assert_int_equal(available, total);
    }
    assert_null(current_context());
}

static void the_current_device_is_the_contexts(void **state)
{
    (void)state;
    int device = -1;
    assert_ok(tarn_device_set(1));
    cu_context one = current_context();
    assert_non_null(one);
    tarn_guard guard;
    assert_ok(tarn_device_guard_set(&guard, 0));
    cu_context zero = current_context();
    assert_ptr_not_equal(zero, one);
    void *block = tarn_malloc(MIB);
    assert_non_null(block);
    assert_ok(tarn_guard_restore(&guard));
    assert_ptr_equal(current_context(), one);
    assert_ok(tarn_free(block)); /* its device is not the current one, which does not matter */
    assert_ptr_equal(current_context(), one);

    set_context(zero); /* by another API */
    assert_ok(tarn_device_get(&device));
    assert_int_equal(device, 1);
    assert_ok(tarn_device_adopt(&device));
    assert_int_equal(device, 0);
    assert_ok(tarn_device_get(&device));
    assert_int_equal(device, 0);
    set_context(NULL);
}

/* Memory is wanted and given back while a stream captures; the capture survives, and what it
 * recorded runs. */
static void a_known_capture_survives_allocations(void **state)
{
    (void)state;
    tarn_stream stream, other;
    void *block = NULL, *more = NULL, *outside = NULL, *graph = NULL;
    unsigned char here = 0;
    assert_ok(tarn_stream_lease(0, 0, &stream));
    assert_ok(tarn_stream_lease(0, 0, &other));
    assert_ok(tarn_alloc_on(stream, GRANULE, &block));
    assert_ok(tarn_capture_begin(stream, TARN_CAPTURE_GLOBAL));
    tarn_capture_state capture = TARN_CAPTURE_NONE;
    uint64_t id = 0;
    assert_ok(driver->set(0, (uintptr_t)block, 9, 1, native_of(stream)));
    assert_ok(tarn_alloc_on(other, 6 * MIB, &outside));
    assert_ok(tarn_free(outside));
    assert_ok(tarn_alloc_on(stream, 3 * MIB, &more));
    assert_ok(tarn_free(more));
    assert_ok(tarn_capture_state_get(stream, &capture, &id, NULL));
    assert_int_equal(capture, TARN_CAPTURE_ACTIVE);
    assert_true(id != 0);
    assert_ok(tarn_capture_end(stream, &graph));
    assert_non_null(graph);
    assert_ok(driver->graph_launch(0, graph, native_of(stream)));
    assert_ok(driver->copy(0, (uintptr_t)&here, (uintptr_t)block, 1, native_of(stream)));
    assert_ok(tarn_stream_synchronize(stream));
    assert_int_equal(here, 9);
    assert_ok(driver->graph_destroy(0, graph));
    assert_ok(tarn_free(block));
    assert_ok(tarn_stream_return(stream));
    assert_ok(tarn_stream_return(other));
}

static uint64_t used_bytes(cu_pool pool)
{
    enum { USED = 7 }; /* CU_MEMPOOL_ATTR_USED_MEM_CURRENT */
    cu_result (*get)(cu_pool, unsigned, void *) = NULL;
    uint64_t bytes = 0;
    loader_store(&get, their("cuMemPoolGetAttribute"));
    assert_int_equal(get(pool, USED, &bytes), CU_OK);
    return bytes;
}

/* A free that is refused leaves the block with its pool. */
static void a_refused_free_leaves_a_block_to_its_pool(void **state)
{
    (void)state;
    cu_result (*get)(cu_pool *, cu_device) = NULL;
    cu_result (*alloc)(cu_address *, size_t, cu_stream) = NULL;
    cu_result (*release)(cu_address, cu_stream) = NULL;
    tarn_stream stream;
    cu_pool pool = NULL;
    cu_address block = 0;
    void *graph = NULL;
    assert_ok(tarn_device_set(0));
    assert_ok(tarn_stream_lease(0, 0, &stream));
    cu_stream native = (cu_stream)native_of(stream);
    loader_store(&get, their("cuDeviceGetDefaultMemPool"));
    loader_store(&alloc, their("cuMemAllocAsync"));
    loader_store(&release, their("cuMemFreeAsync"));
    assert_int_equal(get(&pool, 0), CU_OK);
    assert_int_equal(alloc(&block, 4 * MIB, native), CU_OK);
    assert_int_equal(used_bytes(pool), 4 * MIB);
    assert_ok(tarn_capture_begin(stream, TARN_CAPTURE_GLOBAL));
    assert_int_not_equal(release(block, native), CU_OK);
    assert_int_equal(used_bytes(pool), 4 * MIB);
    assert_ok(tarn_capture_end(stream, &graph));
    assert_ok(driver->graph_destroy(0, graph));
    assert_int_equal(release(block, native), CU_OK);
    assert_int_equal(used_bytes(pool), 0);
    assert_int_not_equal(release(block, native), CU_OK);
    assert_int_equal(used_bytes(pool), 0);
    assert_ok(tarn_stream_return(stream));
    set_context(NULL);
}

/* The last test: nothing works after it. */
static void shutdown_gives_everything_back(void **state)
{
    (void)state;
    assert_ok(tarn_shutdown());
    assert_null(tarn_malloc(1));
    assert_int_equal(tarn_last_status(), TARN_ERROR_SHUTDOWN);
    assert_true(has_context(0)); /* what may have live memory is not destroyed */
}

int main(void)
{
    setenv("TARN_DRIVER", "cuda", 1);
    setenv("TARN_HOST_DEVICES", "2", 1);
    setenv("TARN_HOST_MEMORY", "128M", 1);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_blocks_keep_their_contents),
        cmocka_unit_test(the_current_device_is_the_contexts),
        cmocka_unit_test(a_known_capture_survives_allocations),
        cmocka_unit_test(a_refused_free_leaves_a_block_to_its_pool),
        cmocka_unit_test(shutdown_gives_everything_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
