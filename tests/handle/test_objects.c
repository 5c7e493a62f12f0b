/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* What callers keep of a lease or of a call with a workspace, when it is none, is of another, or is
 * given back twice. */
#include "handle/fake.h"

static void an_invalid_lease_is_refused(void **state)
{
    (void)state;
    uint64_t here[8] = {0};
    tarn_lease lease = {0}, stale, wrong;
    tarn_library library = fake_register(0, false);
    assert_ok(tarn_handle_lease(library, TARN_STREAM_LEGACY, &lease));
    stale = lease;
    void *owners[] = {NULL,   (void *)8,           here,        (char *)lease.owner + 8,
                      &lease, (void *)UINTPTR_MAX, lease.handle};
    for (size_t i = 0; i < sizeof owners / sizeof *owners; i++) {
        wrong = (tarn_lease){.handle = lease.handle, .owner = owners[i], .number = lease.number};
        assert_status(tarn_handle_return(&wrong), TARN_ERROR_INVALID_ARGUMENT);
        assert_status(tarn_handle_lease_bind(&wrong, TARN_STREAM_LEGACY),
                      TARN_ERROR_INVALID_ARGUMENT);
    }
    assert_ok(tarn_handle_return(&lease));
    assert_status(tarn_handle_return(&stale), TARN_ERROR_INVALID_ARGUMENT);
    assert_ok(tarn_handle_trim(library, 0, NULL)); /* the handle is gone, and what it was known
                                                      by */
    assert_status(tarn_handle_return(&stale), TARN_ERROR_INVALID_ARGUMENT);
}

static void an_invalid_call_is_refused(void **state)
{
    (void)state;
    uint64_t here[8] = {0};
    tarn_workspace_call call = {0}, stale, wrong = {0};
    tarn_library library = fake_register(0, true);
    assert_ok(tarn_workspace_size_set(library, 65536));
    assert_ok(tarn_workspace_policy_set(TARN_WORKSPACE_PER_CALL, NULL));
    assert_ok(tarn_workspace_begin(library, TARN_STREAM_CURRENT, NULL, &call));
    assert_true(call.owner && call.pointer);
    void *owners[] = {(void *)8, here, (char *)call.owner + 8, call.handle, (void *)UINTPTR_MAX};
    for (size_t i = 0; i < sizeof owners / sizeof *owners; i++) {
        wrong.owner = owners[i];
        assert_status(tarn_workspace_end(&wrong), TARN_ERROR_INVALID_ARGUMENT);
    }
    stale = call;
    assert_ok(tarn_workspace_end(&call));
    assert_status(tarn_workspace_end(&stale), TARN_ERROR_INVALID_ARGUMENT);
    assert_ok(tarn_workspace_end(&call)); /* cleared: nothing to end */
    assert_ok(tarn_workspace_policy_set(TARN_WORKSPACE_CACHED, NULL));
    assert_int_equal(workspace_stats().count, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(an_invalid_lease_is_refused),
        TEST(an_invalid_call_is_refused),
    };
    host_start(1, (size_t)64 << 20);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
