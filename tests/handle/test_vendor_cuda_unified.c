/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* The workspace that cuBLAS and cuBLASLt share where TARN_CUBLASLT_UNIFIED_WORKSPACE says so. It is
 * read once in a process, so each case has its own. */
#include "handle/handle.h"
#include "support/clearing.h"
#include "support/host.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#define VARIABLE "TARN_CUBLASLT_UNIFIED_WORKSPACE"

static tarn_stream first, second;
static size_t blas_size;

static void start(const char *text)
{
    CHECK((text ? setenv(VARIABLE, text, 1) : unsetenv(VARIABLE)) == 0);
    OK(tarn_stream_lease(0, 0, &first));
    OK(tarn_stream_lease(0, 0, &second));
    tarn_handle_stats stats = {.size = sizeof stats};
    OK(tarn_handle_stats_get(TARN_LIBRARY_CUBLAS, 0, &stats));
    blas_size = stats.workspace_bytes;
    CHECK(blas_size > MIB);
}

/* What the thread's cuBLAS has on the stream now. */
static void *blas_on(tarn_stream stream)
{
    void *handle = NULL;
    OK(tarn_handle_get(TARN_LIBRARY_CUBLAS, stream, &handle));
    return slot_of(thread_here->handles, 0, TARN_LIBRARY_CUBLAS)->held->bound->pointer;
}

static void *lt_on(tarn_stream stream, size_t wanted)
{
    void *pointer = NULL;
    size_t size = 0;
    OK(tarn_workspace_get(TARN_LIBRARY_CUBLASLT, stream, NULL, &pointer, &size));
    CHECK(size == wanted);
    return pointer;
}

static bool is_live(const void *pointer)
{
    size_t size = 0;
    return tarn_usable_size_get(pointer, &size) == TARN_OK;
}

static size_t deferred(void)
{
    tarn_workspace_stats stats = {.size = sizeof stats};
    OK(tarn_workspace_stats_get(0, &stats));
    return stats.deferred_bytes;
}

static void *clear_all(void *cleared)
{
    OK(workspaces_clear_all(cleared));
    return NULL;
}

static tarn_workspace_cleared clear_in_another_thread(void)
{
    pthread_t thread;
    tarn_workspace_cleared cleared;
    CHECK(pthread_create(&thread, NULL, clear_all, &cleared) == 0 &&
          pthread_join(thread, NULL) == 0);
    return cleared;
}

/* ---- The cases ---- */

static void each_has_its_own(const char *text)
{
    start(text);
    void *blas = blas_on(first);
    CHECK(lt_on(first, MIB) != blas);
}

static void by_default(void)
{
    each_has_its_own(NULL);
}

static void switched_off(void)
{
    each_has_its_own("0");
}

static void misspelt(void)
{
    each_has_its_own("yes");
}

/* A get makes no other library's handle; and what a caller was given on a stream stays what it is
 * given there. */
static void what_is_there_serves(void)
{
    tarn_handle_stats stats = {.size = sizeof stats};
    start("1");
    void *own = lt_on(first, MIB);
    OK(tarn_handle_stats_get(TARN_LIBRARY_CUBLAS, 0, &stats));
    CHECK(stats.created == 0);
    void *blas = blas_on(second);
    CHECK(lt_on(second, blas_size) == blas && lt_on(second, blas_size) == blas);
    CHECK(lt_on(first, MIB) == own);
    CHECK(blas_on(first) != own && lt_on(first, MIB) == own);
    OK(tarn_workspace_size_set(TARN_LIBRARY_CUBLASLT, (int64_t)(2 * blas_size)));
    CHECK(lt_on(second, 2 * blas_size) != blas); /* which is too small */
    OK(tarn_workspace_size_set(TARN_LIBRARY_CUBLASLT, -1));
}

/* Until the thread asks again: its cuBLAS may go on to another stream, or to a larger workspace. */
static void what_is_lent_is_not_freed(void)
{
    start("1");
    void *blas = blas_on(first), *lent = lt_on(first, blas_size);
    CHECK(lent == blas && blas_on(second) != blas);
    (void)workspaces_relieve(0);
    CHECK(is_live(lent));
    tarn_workspace_cleared cleared = clear_in_another_thread();
    CHECK(is_live(lent) && cleared.deferred == 2 * blas_size && cleared.freed == 0);
    CHECK(blas_on(second) && is_live(lent));
    /* After a clear it is another: cuBLAS has none here now */
    CHECK(deferred() == blas_size && lt_on(first, MIB));
    CHECK(deferred() == 0);

    lent = blas_on(second);
    CHECK(lt_on(second, blas_size) == lent);
    OK(tarn_workspace_size_set(TARN_LIBRARY_CUBLAS, (int64_t)(2 * blas_size)));
    blas = blas_on(second);
    CHECK(blas != lent && is_live(lent));
    CHECK(lt_on(second, 2 * blas_size) == blas && !is_live(lent));

    OK(workspaces_clear_all(&cleared)); /* by the thread itself */
    CHECK(cleared.deferred == 0 && !is_live(blas));
    OK(tarn_workspace_size_set(TARN_LIBRARY_CUBLAS, -1));
    CHECK(lt_on(second, MIB));
}

static void *borrow(void *lent)
{
    *(void **)lent = blas_on(first);
    CHECK(lt_on(first, blas_size) == *(void **)lent);
    return NULL;
}

static void a_loan_ends_with_its_thread(void)
{
    pthread_t thread;
    void *lent = NULL;
    tarn_workspace_cleared cleared;
    start("1");
    CHECK(pthread_create(&thread, NULL, borrow, &lent) == 0 && pthread_join(thread, NULL) == 0);
    CHECK(blas_on(second) != lent && is_live(lent)); /* by the same handle, which has lent nothing
                                                        to this thread */
    cleared = clear_in_another_thread();
    CHECK(cleared.freed == blas_size && cleared.deferred == blas_size && !is_live(lent));
}

/* A capture's graph has workspaces that nothing else uses, its two libraries one. */
static void a_capture_has_its_own(void)
{
    void *graph = NULL;
    start("1");
    OK(tarn_handle_prewarm(TARN_LIBRARY_CUBLASLT, 0, TARN_STREAM_NONE, 1));
    void *blas = blas_on(first);
    CHECK(lt_on(first, blas_size) == blas);
    OK(tarn_capture_begin(first, TARN_CAPTURE_RELAXED));
    void *captured = blas_on(first);
    CHECK(captured != blas && lt_on(first, blas_size) == captured);
    OK(tarn_capture_end(first, &graph));
    CHECK(blas_on(first) == blas && lt_on(first, blas_size) == blas);
    CHECK(is_live(captured));
    OK(driver->graph_destroy(0, graph));
}

/* Neither a lease, which is no thread's, nor what exists for one call, or is the library's. */
static void others_have_their_own(void)
{
    tarn_lease lease = {0};
    void *pointer = NULL;
    size_t size = 0;
    start("1");
    void *blas = blas_on(first);
    OK(tarn_handle_lease(TARN_LIBRARY_CUBLASLT, first, &lease));
    OK(tarn_workspace_get(TARN_LIBRARY_CUBLASLT, TARN_STREAM_NONE, &lease, &pointer, &size));
    CHECK(pointer != blas && size == MIB);
    OK(tarn_handle_return(&lease));
    OK(tarn_workspace_policy_set(TARN_WORKSPACE_PER_CALL, NULL));
    CHECK(lt_on(first, MIB) != blas);
}

/* ---- The tests ---- */

static void without_the_variable_each_has_its_own(void **state)
{
    (void)state;
    in_child(by_default);
    in_child(switched_off);
    in_child(misspelt);
}

int main(void)
{
    setenv("TARN_HOST_DEVICES", "1", 1);
    setenv("TARN_HOST_MEMORY", "4G", 1);
    setenv("TARN_DRIVER", "cuda", 1);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(without_the_variable_each_has_its_own),
        CHILD_TEST(what_is_there_serves),
        CHILD_TEST(what_is_lent_is_not_freed),
        CHILD_TEST(a_loan_ends_with_its_thread),
        CHILD_TEST(a_capture_has_its_own),
        CHILD_TEST(others_have_their_own),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
