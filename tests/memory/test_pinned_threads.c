/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Threads that take, use, pass on and free pinned memory, short of room, while others trim, reset,
 * capture and change settings. Each block is written through by its owner, and read by real work of
 * a stream that must find it as it was. */
#include "support/pinned.h"

#include <pthread.h>
#include <stdatomic.h>

#define THREADS 4
#define ROUNDS 1500
#define PASSED 32
#define LIMIT (24 * MIB)

static _Atomic(unsigned char *) passed[PASSED]; /* blocks that whoever comes frees; the first bytes
                                                   say the size */
static atomic_uint wrong, served, full;
static atomic_bool over;

struct header {
    size_t size;
    unsigned char paint;
};

/* Real work on a stream: reads the block, later. */
static void look(void *argument)
{
    const unsigned char *block = argument;
    struct header header;
    memcpy(&header, block, sizeof header);
    for (size_t i = sizeof header; i < header.size; i += 97)
        if (block[i] != header.paint)
            atomic_fetch_add(&wrong, 1);
}

static void *work(void *argument)
{
    uint64_t random = (uint64_t)(uintptr_t)argument * 77777 + 1;
    tarn_stream stream = lease(0);
    void *native = native_of(stream);
    for (int i = 0; i < ROUNDS; i++) {
        uint64_t value = random_next(&random) >> 8;
        struct header header = {.size = sizeof header + value % (value % 8 ? 5000 : 3 * MIB),
                                .paint = (unsigned char)(value >> 40)};
        void *pointer = NULL;
        tarn_status status = tarn_pinned_alloc(TARN_STREAM_CURRENT, header.size, &pointer);
        if (status == TARN_ERROR_OUT_OF_MEMORY) {
            atomic_fetch_add(&full, 1);
        } else {
            OK(status);
            unsigned char *block = pointer;
            memset(block, header.paint, header.size);
            memcpy(block, &header, sizeof header);
            if (value % 3) {
                OK(tarn_host_call(0, native, look, block));
                OK(tarn_record_stream(block + value % header.size, stream));
            }
            block = atomic_exchange(&passed[(value >> 20) % PASSED], block);
            OK(tarn_free(block)); /* another's, or NULL */
            atomic_fetch_add(&served, 1);
        }
        CHECK(!tarn_pinned_contains(&header));
    }
    OK(tarn_stream_synchronize(stream));
    return NULL;
}

/* Everything else that there is to do. */
static void *meddle(void *argument)
{
    uint64_t random = 99;
    tarn_stream stream = lease(0);
    while (!atomic_load(&over)) {
        struct pinned_settings settings = pinned_settings();
        uint64_t value = random_next(&random) >> 8;
        settings.background_threads = value & 1;
        settings.use_register = value & 2;
        settings.register_threads = value & 4 ? 1 : 4;
        settings.max_cached_size = value & 8 ? 2 * MIB : SIZE_MAX;
        pinned_settings_set(&settings);
        OK(tarn_pinned_limit_set(value & 16 ? LIMIT : LIMIT + 8 * MIB));
        if (value & 32)
            OK(tarn_pinned_trim(value % LIMIT));
        OK(tarn_pinned_stats_reset(TARN_STATS_PEAK));
        tarn_pinned_stats stats = pinned_stats();
        CHECK(stats.active_bytes.current >= stats.requested_bytes.current);
        CHECK(stats.allocated_bytes.current >= stats.active_bytes.current);
        if (value & 64) {
            OK(tarn_capture_begin(stream, TARN_CAPTURE_GLOBAL));
            void *pointer = NULL;
            tarn_status status = tarn_pinned_alloc(TARN_STREAM_CURRENT, MIB, &pointer);
            if (!status) {
                OK(tarn_record_stream(pointer, stream));
                OK(tarn_free(pointer));
            }
            OK(tarn_capture_abort(stream));
            OK(tarn_pinned_forget_captures());
        }
    }
    return argument;
}

static void threads_share_it(void)
{
    pthread_t threads[THREADS], meddler;
    host_start_with(1, 64 * MIB);
    OK(tarn_pinned_limit_set(LIMIT));
    CHECK(pthread_create(&meddler, NULL, meddle, NULL) == 0);
    for (uintptr_t i = 0; i < THREADS; i++)
        CHECK(pthread_create(&threads[i], NULL, work, (void *)(i + 1)) == 0);
    for (int i = 0; i < THREADS; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
    atomic_store(&over, true);
    CHECK(pthread_join(meddler, NULL) == 0);
    for (int i = 0; i < PASSED; i++)
        OK(tarn_free(atomic_load(&passed[i])));
    struct pinned_settings settings = pinned_settings();
    settings.background_threads = false;
    pinned_settings_set(&settings);
    CHECK(atomic_load(&wrong) == 0);
    CHECK(atomic_load(&served) > THREADS * ROUNDS / 2);
    OK(tarn_device_synchronize(0));
    pinned_nothing_is_left(1);
    OK(tarn_shutdown());
}

/* Two threads, each of which needs what the other one gives back: neither may fail while memory is
 * only on its way. */
static void *swap(void *argument)
{
    size_t size = (size_t)(uintptr_t)argument;
    for (int i = 0; i < 300; i++) {
        void *pointer = NULL;
        OK(tarn_pinned_alloc(TARN_STREAM_CURRENT, size, &pointer));
        OK(tarn_free(pointer));
    }
    return NULL;
}

static void nobody_fails_for_what_is_on_its_way(void)
{
    pthread_t threads[2];
    host_start_with(1, 64 * MIB);
    OK(tarn_pinned_limit_set(11 * MIB)); /* both fit, once nothing else is cached */
    for (uintptr_t i = 0; i < 2; i++)
        CHECK(pthread_create(&threads[i], NULL, swap, (void *)((5 + i) * MIB)) == 0);
    for (int i = 0; i < 2; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
    OK(tarn_pinned_trim(0));
    pthread_t more[2];
    struct pinned_settings settings = pinned_settings();
    settings.max_cached_size = 0;
    pinned_settings_set(&settings);
    for (uintptr_t i = 0; i < 2; i++)
        CHECK(pthread_create(&more[i], NULL, swap, (void *)((5 + i) * MIB)) == 0);
    for (int i = 0; i < 2; i++)
        CHECK(pthread_join(more[i], NULL) == 0);
    pinned_nothing_is_left(1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        CHILD_TEST(threads_share_it),
        CHILD_TEST(nobody_fails_for_what_is_on_its_way),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
