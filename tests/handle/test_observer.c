/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Handles within an observer's callback that memory was mapped: one that exists is given and bound;
 * none is created or destroyed there, nor is the creation of another thread waited for, since that
 * may itself wait for the memory that is on the move. */
#include "driver/driver.h"
#include "support/host.h"

#include <pthread.h>
#include <semaphore.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

static struct thing {
    void *stream;
} * newest;

static tarn_library library;
static tarn_stream own, other;
static sem_t begun, may_go_on;
static bool create_waits;
static unsigned created, destroyed;

/* A create that takes its time, and then needs more memory than there is at hand. */
static int thing_create(void **handle)
{
    void *memory = NULL;
    created++;
    if (create_waits) {
        create_waits = false;
        sem_post(&begun);
        sem_wait(&may_go_on);
        OK(tarn_alloc_on(own, 60 * MIB, &memory));
        OK(tarn_free(memory));
    }
    newest = calloc(1, sizeof *newest);
    *handle = newest;
    return !newest;
}

static int thing_destroy(void *handle)
{
    destroyed++;
    free(handle);
    return 0;
}

static int thing_set_stream(void *handle, void *stream)
{
    ((struct thing *)handle)->stream = stream;
    return 0;
}

static void begin(void)
{
    const tarn_library_row row = {.size = sizeof row,
                                  .name = "observed",
                                  .create = thing_create,
                                  .destroy = thing_destroy,
                                  .set_stream = thing_set_stream};
    host_start_with(1, 512 * MIB);
    OK(tarn_library_register(&row, &library));
    own = lease(0);
    other = lease(0);
    sem_init(&begun, 0, 0);
    sem_init(&may_go_on, 0, 0);
}

/* ---- The callback ---- */

static tarn_status wanted; /* of a get in it */
static tarn_stream wanted_on;
static unsigned heard;

static void hear_mapped(const tarn_mapping *range, void *user)
{
    void *handle = NULL;
    size_t count = 7;
    (void)range;
    (void)user;
    if (heard++)
        return;
    GIVES(tarn_handle_get(library, wanted_on, &handle), wanted);
    if (wanted == TARN_OK)
        CHECK(((struct thing *)handle)->stream == native_of(wanted_on));
    else
        CHECK(handle == NULL);
    GIVES(tarn_handle_prewarm(library, 0, TARN_STREAM_NONE, 2), TARN_ERROR_BUSY);
    GIVES(tarn_handle_trim(library, 0, &count), TARN_ERROR_BUSY);
    CHECK(count == 7);
}

/* Maps memory, and so calls it. */
static void map_and_hear(tarn_status status, tarn_stream on)
{
    const tarn_observer_options options = {
        .size = sizeof options, .device = 0, .mapped = hear_mapped};
    tarn_observer observer = 0;
    wanted = status;
    wanted_on = on;
    heard = 0;
    OK(tarn_observer_add(&options, &observer));
    void *block = alloc_on(own, 40 * MIB);
    OK(tarn_observer_remove(observer));
    CHECK(heard > 0);
    OK(tarn_free(block));
    OK(tarn_device_trim(0, 0));
}

static void get_what_exists(void)
{
    void *handle = NULL;
    begin();
    map_and_hear(TARN_ERROR_BUSY, own);
    CHECK(created == 0);
    OK(tarn_handle_get(library, own, &handle));
    CHECK(created == 1);
    map_and_hear(TARN_OK, own);
    map_and_hear(TARN_OK, other);
    CHECK(created == 1 && destroyed == 0);
    OK(tarn_handle_get(library, own, &handle));
    CHECK(handle == newest && newest->stream == native_of(own));
    OK(tarn_shutdown());
}

static void *ask_in_thread(void *argument)
{
    void *handle = NULL;
    (void)argument;
    OK(tarn_handle_get(library, other, &handle));
    return NULL;
}

static void ask_beside_a_create(void)
{
    pthread_t thread;
    begin();
    create_waits = true;
    CHECK(pthread_create(&thread, NULL, ask_in_thread, NULL) == 0);
    sem_wait(&begun);
    map_and_hear(TARN_ERROR_BUSY, own);
    sem_post(&may_go_on);
    pthread_join(thread, NULL);
    OK(tarn_device_trim(0, 0));
    map_and_hear(TARN_OK, own); /* the one that it gave back */
    CHECK(created == 1);
    OK(tarn_shutdown());
}

static void an_existing_handle_is_reused(void **state)
{
    (void)state;
    in_child(get_what_exists);
}

static void the_creation_of_another_thread_is_not_waited_for(void **state)
{
    (void)state;
    in_child(ask_beside_a_create);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_existing_handle_is_reused),
        cmocka_unit_test(the_creation_of_another_thread_is_not_waited_for)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
