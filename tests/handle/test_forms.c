/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* The forms of a get: for another stream than the current one, for a lease, and without the
 * set-up. */
#include "handle/fake.h"

#include "driver/driver.h"

static bool is_memory(const void *pointer)
{
    tarn_block_info info = {.size = sizeof info};
    return tarn_pointer_info_get(pointer, &info) == TARN_OK;
}

static void test_a_call_has_its_workspace_on_the_stream_that_is_named(void **state)
{
    (void)state;
    tarn_library library = fake_register(0, true);
    tarn_stream stream = new_stream();
    tarn_workspace_call call = {0};
    tarn_block_info info = {.size = sizeof info};
    assert_ok(tarn_workspace_size_set(library, 1 << 20));
    assert_ok(tarn_workspace_policy_set(TARN_WORKSPACE_PER_CALL, NULL));
    struct fake_handle *handle = get(library);
    assert_ptr_equal(handle->stream, native(TARN_STREAM_LEGACY));

    assert_ok(tarn_workspace_begin(library, stream, NULL, &call));
    assert_ptr_equal(call.handle, handle);
    assert_ptr_equal(handle->stream, native(stream));
    assert_ptr_equal(handle->workspace, call.pointer);
    assert_ok(tarn_pointer_info_get(call.pointer, &info));
    assert_int_equal(info.stream, stream);
    assert_ok(tarn_workspace_end(&call));
    assert_null(handle->workspace);
    assert_ptr_equal(get(library)->stream, native(TARN_STREAM_LEGACY));

    assert_ok(tarn_stream_return(stream));
    assert_status(tarn_workspace_begin(library, stream, NULL, &call), TARN_ERROR_INVALID_STREAM);
    assert_status(tarn_workspace_begin(library, TARN_STREAM_LEGACY, NULL, NULL),
                  TARN_ERROR_INVALID_ARGUMENT);
}

static void *end_call(void *call)
{
    assert_ok(tarn_workspace_end(call));
    return NULL;
}

static void test_a_lease_has_a_workspace_for_a_call(void **state)
{
    (void)state;
    tarn_library library = fake_register(0, true);
    tarn_stream stream = new_stream(), other;
    tarn_workspace_call call = {0};
    tarn_lease lease = {0}, none = {0};
    driver_stream made = NULL;
    assert_ok(driver->stream_create(THIS_DEVICE, 0, false, &made));
    assert_ok(tarn_stream_adopt(THIS_DEVICE, made, &other));
    assert_ok(tarn_workspace_size_set(library, 1 << 20));
    assert_ok(tarn_workspace_policy_set(TARN_WORKSPACE_PER_CALL, NULL));
    assert_ok(tarn_handle_lease(library, stream, &lease));
    struct fake_handle *handle = lease.handle;

    assert_ok(tarn_workspace_begin(library, TARN_STREAM_NONE, &lease, &call));
    void *pointer = call.pointer;
    assert_ptr_equal(call.handle, handle);
    assert_ptr_equal(handle->workspace, pointer);
    assert_ptr_equal(handle->stream, native(stream));
    assert_refused(tarn_handle_return(&lease), TARN_ERROR_BUSY, "tarn_workspace_end()");
    assert_refused(tarn_handle_lease_bind(&lease, other), TARN_ERROR_BUSY, "tarn_workspace_end()");
    assert_ptr_equal(handle->workspace, pointer);
    in_thread(end_call, &call); /* whoever has the lease */
    assert_null(handle->workspace);
    assert_false(is_memory(pointer));

    assert_ok(tarn_handle_lease_bind(&lease, other));
    assert_ok(tarn_workspace_begin(library, TARN_STREAM_NONE, &lease, &call));
    assert_ptr_equal(handle->stream, native(other));
    assert_ok(tarn_workspace_end(&call));
    assert_refused(tarn_workspace_begin(library, other, &lease, &call), TARN_ERROR_INVALID_ARGUMENT,
                   "TARN_STREAM_NONE");
    assert_refused(tarn_workspace_begin(library + 1, TARN_STREAM_NONE, &lease, &call),
                   TARN_ERROR_INVALID_ARGUMENT, "is of library");
    assert_ok(tarn_stream_retire(other));
    assert_refused(tarn_workspace_begin(library, TARN_STREAM_NONE, &lease, &call),
                   TARN_ERROR_INVALID_STREAM, "tarn_handle_lease_bind()");
    assert_ok(tarn_handle_return(&lease));
    assert_status(tarn_workspace_begin(library, TARN_STREAM_NONE, &none, &call),
                  TARN_ERROR_INVALID_ARGUMENT);
    assert_ok(tarn_stream_return(stream));
    driver->stream_destroy(THIS_DEVICE, made);
}

static void *clear_as_another(void *cleared)
{
    assert_ok(workspaces_clear_all(cleared));
    return NULL;
}

/* Under CACHED a begin is a get: the lease lets go of what was cleared, and has a new one. */
static void test_a_lease_lets_go_of_what_was_cleared(void **state)
{
    (void)state;
    tarn_library library = fake_register(0, true);
    tarn_stream stream = new_stream();
    tarn_workspace_call call = {0};
    tarn_workspace_cleared cleared = {0};
    tarn_lease lease = {0};
    assert_ok(tarn_workspace_size_set(library, 1 << 20));
    assert_ok(tarn_handle_lease(library, stream, &lease));
    struct fake_handle *handle = lease.handle;
    void *before = handle->workspace;
    in_thread(clear_as_another, &cleared);
    assert_int_equal(cleared.deferred, 1 << 20);
    assert_true(is_memory(before));
    assert_ok(tarn_workspace_begin(library, TARN_STREAM_NONE, &lease, &call));
    assert_null(call.pointer);
    assert_ptr_not_equal(handle->workspace, before);
    assert_true(is_memory(handle->workspace) && !is_memory(before));
    assert_ok(tarn_workspace_end(&call));
    assert_ok(tarn_handle_return(&lease));
    assert_ok(workspaces_clear_all(NULL));
    assert_ok(tarn_stream_return(stream));
}

static struct fake_handle *plain(tarn_library library)
{
    void *handle = NULL;
    assert_ok(tarn_handle_get(library, TARN_STREAM_NONE, &handle));
    return handle;
}

static void *plain_as_another(void *argument)
{
    return plain(*(tarn_library *)argument);
}

static void test_a_plain_handle_is_told_nothing(void **state)
{
    (void)state;
    tarn_library library = fake_register(0, true);
    int mine;
    assert_ok(tarn_workspace_size_set(library, 1 << 20));
    struct fake_handle *handle = plain(library);
    assert_int_equal(fake_calls(FAKE_CREATE), 1);
    assert_int_equal(fake_calls(FAKE_SET_STREAM) + fake_calls(FAKE_SET_WORKSPACE) +
                         fake_calls(FAKE_SET_POINTER_MODE),
                     0);

    assert_ptr_equal(get(library), handle);
    void *workspace = handle->workspace;
    assert_non_null(workspace);
    int calls = fake_calls(FAKE_SET_STREAM);
    assert_ptr_equal(plain(library), handle);
    assert_int_equal(fake_calls(FAKE_SET_STREAM), calls);

    /* What the caller sets is undone by the next get, also of the same stream. */
    assert_int_equal(fake_set_stream(handle, &mine), 0);
    assert_int_equal(fake_set_workspace(handle, &mine, sizeof mine), 0);
    assert_int_equal(fake_set_pointer_mode(handle, 1), 0);
    assert_ptr_equal(get(library), handle);
    assert_ptr_equal(handle->stream, native(TARN_STREAM_LEGACY));
    assert_ptr_equal(handle->workspace, workspace);
    assert_int_equal(handle->pointer_mode, 0);
    assert_int_equal(handle_stats(library).contract_breaks, 0);

    /* It is the thread's own. */
    pthread_t thread;
    void *other = NULL;
    assert_int_equal(pthread_create(&thread, NULL, plain_as_another, &library), 0);
    assert_int_equal(pthread_join(thread, &other), 0);
    assert_ptr_not_equal(other, handle);
    assert_status(tarn_handle_get(library, TARN_STREAM_NONE, NULL), TARN_ERROR_INVALID_ARGUMENT);
    assert_ok(workspaces_clear_all(NULL));
}

/* A library that keeps a workspace until it learns of another. */
static void test_a_plain_handle_points_to_nothing_that_was_freed(void **state)
{
    (void)state;
    tarn_library library = fake_register(0, true);
    atomic_store(&fake.keeps_workspace, true);
    assert_ok(tarn_workspace_size_set(library, 1 << 20));
    struct fake_handle *handle = get(library);
    assert_ok(workspaces_clear_all(NULL));
    assert_false(is_memory(handle->workspace));
    assert_ptr_equal(plain(library), handle);
    assert_true(is_memory(handle->workspace));
    assert_ok(workspaces_clear_all(NULL));
    assert_ok(tarn_workspace_policy_set(TARN_WORKSPACE_LIBRARY, NULL));
    assert_ptr_equal(plain(library), handle);
    assert_null(handle->workspace);
}

static void test_a_plain_handle_keeps_its_stream(void **state)
{
    (void)state;
    tarn_library library = fake_register(TARN_LIBRARY_BY_STREAM, false);
    tarn_stream stream = new_stream();
    struct fake_handle *first = plain(library);
    assert_ok(tarn_stream_set(stream));
    struct fake_handle *second = plain(library);
    assert_ptr_not_equal(first, second);
    assert_ptr_equal(get(library), second);
    assert_ptr_equal(second->stream, native(stream));
    assert_ok(tarn_stream_set(TARN_STREAM_LEGACY));
    assert_ptr_equal(plain(library), first);
    assert_ok(tarn_stream_return(stream));
}

static void test_a_plain_handle_is_not_made_in_a_capture(void **state)
{
    (void)state;
    tarn_library library = fake_register(0, true);
    tarn_stream stream = new_stream();
    void *handle = NULL;
    assert_ok(tarn_capture_begin(stream, TARN_CAPTURE_RELAXED));
    tarn_status status = tarn_handle_get(library, TARN_STREAM_NONE, &handle);
    assert_ok(tarn_capture_abort(stream));
    assert_int_equal(status, TARN_ERROR_CAPTURE);
    assert_null(handle);
    assert_ok(tarn_stream_return(stream));
}

static void *no_wait_limit(void *argument)
{
    uint64_t ns = 1;
    assert_ok(tarn_handle_wait_limit_set(5, &ns));
    assert_int_equal(ns, 0);
    return argument;
}

static void test_the_wait_limit_is_the_threads(void **state)
{
    (void)state;
    uint64_t ns = 1;
    assert_ok(tarn_handle_wait_limit_set(77, NULL));
    in_thread(no_wait_limit, NULL);
    assert_ok(tarn_handle_wait_limit_set(0, &ns));
    assert_int_equal(ns, 77);
}

#define FORM_TEST(function) cmocka_unit_test_setup_teardown(function, fake_reset, back_to_default)

int main(void)
{
    const struct CMUnitTest tests[] = {
        FORM_TEST(test_a_call_has_its_workspace_on_the_stream_that_is_named),
        FORM_TEST(test_a_lease_has_a_workspace_for_a_call),
        FORM_TEST(test_a_lease_lets_go_of_what_was_cleared),
        FORM_TEST(test_a_plain_handle_is_told_nothing),
        FORM_TEST(test_a_plain_handle_points_to_nothing_that_was_freed),
        FORM_TEST(test_a_plain_handle_keeps_its_stream),
        FORM_TEST(test_a_plain_handle_is_not_made_in_a_capture),
        FORM_TEST(test_the_wait_limit_is_the_threads),
    };
    host_start(1, 256 * MIB);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
