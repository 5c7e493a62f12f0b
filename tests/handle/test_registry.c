/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* The table of libraries: numbers and names, what is registered at run time, what is looked for and
 * where, and what is said when it is not there. */
#include "handle/fake.h"
#include <fcntl.h>
#include <limits.h>
#include <sys/stat.h>

#include "abi/handle_symbols.h"
#include "base/pages.h"
#include "driver/loader.h"
#include "handle/library.h"

static tarn_library_info info_of(tarn_library library)
{
    tarn_library_info info = {.size = sizeof info};
    assert_ok(tarn_library_info_get(library, &info));
    return info;
}

static void test_built_in(void **state)
{
    (void)state;
    tarn_library found = 0;
#define X(NAME, number, name)                    \
    assert_ok(tarn_library_find(#name, &found)); \
    assert_int_equal(found, TARN_LIBRARY_##NAME);
    TARN_LIBRARY_LIST(X)
#undef X
    assert_refused(tarn_library_find("cuddn", &found), TARN_ERROR_INVALID_ARGUMENT, "cuddn");
    assert_status(tarn_library_find(NULL, &found), TARN_ERROR_INVALID_ARGUMENT);
}

static bool is_in_list(const char *symbol)
{
#define X(name, result, parameters) \
    if (strcmp(symbol, #name) == 0) \
        return true;
    HANDLE_SYMBOL_LIST(X)
    CUDSS_SYMBOL_LIST(X)
    HIP_HANDLE_SYMBOL_LIST(X)
    HIP_HANDLE_LATER_LIST(X)
#undef X
    return false;
}

/* What a row calls checked has been compared with the vendor's headers:
 * tests/abi/check_handles.c. */
static void test_checked_rows_name_checked_symbols(void **state)
{
    (void)state;
#define X(NAME, number, name) &library_##name,
    static const struct library *const rows[] = {TARN_LIBRARY_LIST(X)};
#undef X
    int checked = 0;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const struct library *row = rows[i];
        const char *symbols[] = {row->create,     row->destroy,       row->set_stream,
                                 row->get_stream, row->set_workspace, row->status_text,
                                 row->version,    row->memory};
        const char *modes[LIBRARY_MODES * 2];
        for (int j = 0; j < LIBRARY_MODES; j++) {
            modes[2 * j] = row->modes[j].set;
            modes[2 * j + 1] = row->modes[j].get;
        }
        for (size_t j = 0; !row->unchecked && j < sizeof modes / sizeof *modes; j++)
            if (modes[j] && !is_in_list(modes[j]))
                fail_msg("%s: %s", row->name, modes[j]);
        for (size_t j = 0; !row->unchecked && j < sizeof symbols / sizeof *symbols; j++) {
            if (symbols[j] && !is_in_list(symbols[j]))
                fail_msg("%s: %s", row->name, symbols[j]);
            checked += symbols[j] != NULL;
        }
    }
    assert_true(checked >= 40);
}

static void test_missing(void **state)
{
    (void)state;
    const char *sonames[] = {"libnowhere.so.2", "libnowhere.so.1", NULL};
    tarn_library_row row = {.size = sizeof row,
                            .name = "nowhere",
                            .sonames = sonames,
                            .create_name = "nowhereCreate",
                            .destroy_name = "nowhereDestroy"};
    tarn_library library;
    void *handle;
    assert_ok(tarn_library_register(&row, &library));
    assert_refused(tarn_handle_get(library, TARN_STREAM_CURRENT, &handle),
                   TARN_ERROR_LIBRARY_NOT_FOUND, "libnowhere.so.2, libnowhere.so.1");
    assert_refused(tarn_handle_get(library, TARN_STREAM_CURRENT, &handle),
                   TARN_ERROR_LIBRARY_NOT_FOUND, "libnowhere.so.1"); /* remembered */
    tarn_library_info info = info_of(library);
    assert_false(info.found || info.usable || info.checked);
    assert_string_equal(info.sonames, "libnowhere.so.2, libnowhere.so.1");
    assert_non_null(strstr(info.reason, "libnowhere.so.1"));
    assert_string_equal(info.name, "nowhere");
}

static void test_symbols_missing(void **state)
{
    (void)state;
    const char *sonames[] = {"libc.so.6", NULL};
    tarn_library_row row = {.size = sizeof row,
                            .name = "no_symbol",
                            .sonames = sonames,
                            .create_name = "malloc",
                            .destroy_name = "nothing_of_that_name"};
    tarn_library library;
    void *handle;
    assert_ok(tarn_library_register(&row, &library));
    assert_refused(tarn_handle_get(library, TARN_STREAM_CURRENT, &handle),
                   TARN_ERROR_LIBRARY_NOT_FOUND, "nothing_of_that_name");
    const char *said = strstr(tarn_last_error(), "nothing_of_that_name");
    assert_null(
        strstr(said + 1, "nothing_of_that_name")); /* once, although the process has it and the
                                                      loader finds it */
}

static void test_registered_is_checked(void **state)
{
    (void)state;
    tarn_library library = 99;
    const char *many[] = {"1", "2", "3", "4", "5", "6", NULL}, *empty[] = {"", NULL},
               *none[] = {NULL};
    tarn_library_row row = {
        .size = sizeof row, .name = "checked", .create = fake_create, .destroy = fake_destroy};
#define REFUSED(field, value)                                                              \
    do {                                                                                   \
        tarn_library_row bad = row;                                                        \
        bad.field = value;                                                                 \
        assert_status(tarn_library_register(&bad, &library), TARN_ERROR_INVALID_ARGUMENT); \
    } while (0)
    REFUSED(size, 8);
    REFUSED(name, NULL);
    REFUSED(name, "");
    REFUSED(name, "a name that is far longer than 31 letters");
    REFUSED(name, "cudnn");
    REFUSED(flags, 1u << 20);
    REFUSED(platform, (tarn_platform)9);
    REFUSED(create, NULL);
    REFUSED(destroy, NULL);
    REFUSED(sonames, many);
    REFUSED(sonames, empty);
    REFUSED(set_stream_name, "set_it"); /* names that there is nothing to look up in */
    REFUSED(get_stream_name, "get_it");
    REFUSED(set_workspace_name, "set_workspace");
    REFUSED(set_pointer_mode_name, "set_mode");
    REFUSED(status_text_name, "text");
    row.sonames = none;
    REFUSED(set_stream_name, "set_it");
    row.sonames = NULL;
    row.create_name = "made_by"; /* what messages call the function */
    assert_status(tarn_library_register(NULL, &library), TARN_ERROR_INVALID_ARGUMENT);
    assert_status(tarn_library_register(&row, NULL), TARN_ERROR_INVALID_ARGUMENT);
    assert_int_equal(library, 99);
    for (uint64_t nth = 1;; nth++) { /* every allocation of ours */
        pages_fail(nth, false);
        tarn_status status = tarn_library_register(&row, &library);
        uint64_t hits = pages_fail_hits();
        pages_fail(0, false);
        if (!hits) {
            assert_ok(status);
            break;
        }
        assert_int_equal(status, TARN_ERROR_OUT_OF_HOST_MEMORY);
    }
    /* The name is taken */
    assert_status(tarn_library_register(&row, &library), TARN_ERROR_INVALID_ARGUMENT);
    tarn_library_info info = info_of(library);
    assert_true(info.found && info.usable);
    assert_string_equal(info.path, "");
    assert_non_null(get(library));
}

static void test_needs_another_driver(void **state)
{
    (void)state;
    tarn_library_row row = {.size = sizeof row,
                            .name = "for_hip",
                            .platform = TARN_PLATFORM_HIP,
                            .create = fake_create,
                            .destroy = fake_destroy};
    tarn_library library;
    void *handle;
    assert_ok(tarn_library_register(&row, &library));
    assert_refused(tarn_handle_get(library, TARN_STREAM_CURRENT, &handle), TARN_ERROR_NOT_SUPPORTED,
                   "\"hip\"");
    tarn_library_info info = info_of(library);
    assert_true(info.found);
    assert_false(info.usable);
    assert_non_null(strstr(info.reason, "host"));
}

static int create_numbered(void **handle, int number)
{
    int code = fake_create(handle);
    if (!code)
        ((struct fake_handle *)*handle)->number = number;
    return code;
}

static void test_create_takes_a_number(void **state)
{
    (void)state;
    tarn_library_row row = {.size = sizeof row,
                            .name = "numbered",
                            .flags = TARN_LIBRARY_CREATE_TAKES_NUMBER,
                            .create_number = 100,
                            .create_with_number = create_numbered,
                            .destroy = fake_destroy};
    tarn_library library;
    assert_ok(tarn_library_register(&row, &library));
    assert_int_equal(get(library)->number, 100); /* and no set_stream, which it has not */
    assert_int_equal(fake_calls(FAKE_SET_STREAM), 0);
}

static int create_broken(void **handle)
{
    (void)fake_create(handle);
    return 5;
}

static void test_failed_handle_is_real(void **state)
{
    (void)state;
    tarn_library_row row = {.size = sizeof row,
                            .name = "like_cudss",
                            .flags = TARN_LIBRARY_FAILED_HANDLE_IS_REAL,
                            .create = create_broken,
                            .destroy = fake_destroy};
    tarn_library library;
    void *handle;
    assert_ok(tarn_library_register(&row, &library));
    assert_status(tarn_handle_get(library, TARN_STREAM_CURRENT, &handle), TARN_ERROR_LIBRARY);
    assert_int_equal(fake_calls(FAKE_DESTROY), 1);
}

static void test_directories(void **state)
{
    (void)state;
    const char *sonames[] = {"libc.so.6", NULL};
    tarn_library_row row = {.size = sizeof row,
                            .name = "the_c_library",
                            .sonames = sonames,
                            .create_name = "malloc",
                            .destroy_name = "free"};
    tarn_library library;
    assert_ok(tarn_library_register(&row, &library));
    tarn_library_info info = info_of(library);
    assert_true(info.found);
    assert_non_null(strstr(info.path, "libc.so.6"));
}

static char folder[] = "/tmp/tarn-registry-XXXXXX";

static const char *in_folder(const char *name)
{
    static char path[128];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

/* Makes a name in the folder stand for a library of the system. */
static void put_library(const char *name, const char *soname)
{
    const char *const sonames[] = {soname, NULL};
    struct loaded loaded;
    assert_ok(loader_open(sonames, &loaded, NULL, 0));
    assert_int_equal(symlink(loader_path(&loaded), in_folder(name)), 0);
}

static void put_text(const char *name)
{
    FILE *file = fopen(in_folder(name), "w");
    assert_non_null(file);
    assert_true(fputs("this is no library at all, whatever its name says of it\n", file) > 0);
    assert_int_equal(fclose(file), 0);
}

static tarn_library_info find_in_folder(const char *name, const char *const *sonames)
{
    tarn_library_row row = {.size = sizeof row,
                            .name = name,
                            .sonames = sonames,
                            .create_name = "cos",
                            .destroy_name = "free"};
    tarn_library library;
    assert_ok(tarn_library_register(&row, &library));
    return info_of(library);
}

/* A file of TARN_LIBRARY_PATH that does not serve is reported, and the next version is tried: what
 * is no library, what lacks a function. */
static void test_broken_files(void **state)
{
    (void)state;
    static const char *const versions[] = {"libversions.so.3", "libversions.so.2",
                                           "libversions.so.1", NULL};
    static const char *const broken[] = {"libbroken.so.1", NULL};
    tarn_library library;
    void *handle;
    assert_true(mkdtemp(folder) && setenv("TARN_LIBRARY_PATH", folder, 1) == 0);
    put_text("libversions.so.3");
    put_library("libversions.so.2", "libc.so.6"); /* which has no cosine */
    put_library("libversions.so.1", "libm.so.6");
    put_text("libbroken.so.1");
    tarn_library_info info = find_in_folder("versions", versions);
    assert_true(info.found);
    assert_non_null(strstr(info.path, "libm"));
    assert_string_equal(info.reason, "");

    assert_int_equal(unlink(in_folder("libversions.so.1")), 0);
    info = find_in_folder("versions_broken", versions);
    assert_false(info.found);
    assert_non_null(strstr(info.reason, in_folder("libversions.so.3: ")));
    assert_non_null(strstr(info.reason, " has no symbol cos"));
    info = find_in_folder("broken", broken);
    assert_false(info.found);
    assert_non_null(strstr(info.reason, in_folder("libbroken.so.1: ")));
    assert_ok(tarn_library_find("broken", &library));
    assert_refused(tarn_handle_get(library, TARN_STREAM_CURRENT, &handle),
                   TARN_ERROR_LIBRARY_NOT_FOUND, in_folder("libbroken.so.1: "));
    unlink(in_folder("libversions.so.3"));
    unlink(in_folder("libversions.so.2"));
    unlink(in_folder("libbroken.so.1"));
    assert_int_equal(unsetenv("TARN_LIBRARY_PATH") || rmdir(folder), 0);
}

/* As PyTorch loads cuBLAS from a folder that nothing else knows. */
static void test_what_the_program_loads_later(void **state)
{
    (void)state;
    static const char *const sonames[] = {"libm.so.6", NULL};
    tarn_library library;
    loader_fail("libm.so.6");
    assert_false(find_in_folder("later", sonames).found);
    assert_ok(tarn_library_find("later", &library));
    assert_non_null(strstr(info_of(library).reason, "libm.so.6"));
    loader_fail(NULL);
    tarn_library_info info = info_of(library);
    assert_true(info.found);
    assert_string_equal(info.reason, "");
    assert_non_null(strstr(info.path, "libm"));
}

static void test_a_long_path(void **state)
{
    (void)state;
    static const char *const sonames[] = {"libfar.so.1", NULL};
    char path[PATH_MAX - 64] = "";
    assert_non_null(mkdtemp(strcpy(folder, "/tmp/tarn-registry-XXXXXX")));
    memset(path, '/', sizeof path - 1);
    memcpy(path, folder, strlen(folder));
    assert_int_equal(setenv("TARN_LIBRARY_PATH", path, 1), 0);
    put_library("libfar.so.1", "libm.so.6");
    assert_true(find_in_folder("far", sonames).found);
    unlink(in_folder("libfar.so.1"));
    assert_int_equal(unsetenv("TARN_LIBRARY_PATH") || rmdir(folder), 0);
}

/* What cuDSS and MIOpen are given: their own allocator structures, served from tarn's memory in the
 * order of a stream. */
struct cudss_handler {
    void *context;
    int (*device_alloc)(void *, void **, size_t, void *);
    int (*device_free)(void *, void *, size_t, void *);
    char name[64];
};
static struct cudss_handler cudss;
static struct {
    void *(*allocate)(void *, size_t);
    void (*deallocate)(void *, void *);
    void *context;
} miopen;

static int cudss_set(void *handle, const struct cudss_handler *handler)
{
    cudss = *handler;
    return handle ? 0 : 1;
}

static int miopen_set(void *handle, void *(*allocate)(void *, size_t),
                      void (*deallocate)(void *, void *), void *context)
{
    miopen.allocate = allocate;
    miopen.deallocate = deallocate;
    miopen.context = context;
    return handle ? 0 : 1;
}

static void test_memory_of_libraries(void **state)
{
    (void)state;
    tarn_library library = fake_register(0, false);
    tarn_stream a = new_stream(), b = new_stream();
    tarn_block_info info = {.size = sizeof info};
    tarn_lease lease;
    void *symbol, *pointer = NULL;
    assert_ok(tarn_handle_lease(library, a, &lease));

    int (*set_cudss)(void *, const struct cudss_handler *) = cudss_set;
    memcpy(&symbol, &set_cudss, sizeof symbol);
    assert_int_equal(library_cudss.give_memory(lease.owner, symbol), 0);
    assert_string_equal(cudss.name, "tarn");
    assert_int_equal(cudss.device_alloc(cudss.context, &pointer, 3000, native(a)), 0);
    assert_ok(tarn_pointer_info_get(pointer, &info));
    assert_int_equal(info.stream, a);
    assert_int_equal(info.requested, 3000);
    assert_int_equal(cudss.device_free(cudss.context, pointer, 3000, native(a)), 0);
    assert_int_not_equal(tarn_pointer_info_get(pointer, &info), TARN_OK);
    /* Not the handle's stream */
    assert_int_equal(cudss.device_alloc(cudss.context, &pointer, 5000, native(b)), 0);
    assert_int_equal(cudss.device_free(cudss.context, pointer, 5000, native(a)), 0);
    assert_int_not_equal(cudss.device_alloc(cudss.context, &pointer, (size_t)1 << 50, native(a)),
                         0);
    assert_int_not_equal(cudss.device_free(cudss.context, &info, 8, native(a)), 0);

    int (*set_miopen)(void *, void *(*)(void *, size_t), void (*)(void *, void *), void *) =
        miopen_set;
    memcpy(&symbol, &set_miopen, sizeof symbol);
    assert_int_equal(library_miopen.give_memory(lease.owner, symbol), 0);
    pointer = miopen.allocate(miopen.context, 4000);
    assert_ok(tarn_pointer_info_get(pointer, &info));
    assert_int_equal(info.stream, a);
    assert_ok(tarn_handle_lease_bind(&lease, b));
    void *other = miopen.allocate(miopen.context, 4000);
    assert_ok(tarn_pointer_info_get(other, &info));
    assert_int_equal(info.stream, b);
    miopen.deallocate(miopen.context, pointer); /* after what runs on b as well */
    miopen.deallocate(miopen.context, other);
    assert_null(miopen.allocate(miopen.context, (size_t)1 << 50));
    assert_ok(tarn_handle_return(&lease));
}

static atomic_int answers;
static pthread_barrier_t all_made; /* the loader, which is held up, is asked for each thread */

static void *ask_for(void *argument)
{
    tarn_library_info info = {.size = sizeof info};
    pthread_barrier_wait(&all_made);
    assert_ok(tarn_library_info_get(*(tarn_library *)argument, &info));
    assert_false(info.found);
    assert_non_null(strstr(info.reason, "libslowly.so.1"));
    atomic_fetch_add(&answers, 1);
    return NULL;
}

/* Threads that want a library while others open it, which takes as long as somebody is to write to
 * this file, all have an answer. */
static void test_found_by_another_thread(void **state)
{
    (void)state;
    const char *const sonames[] = {"libslowly.so.1", NULL};
    const tarn_library_row row = {.size = sizeof row,
                                  .name = "slowly",
                                  .sonames = sonames,
                                  .create_name = "create",
                                  .destroy_name = "destroy"};
    char place[] = "/tmp/tarn-registry-XXXXXX", path[64];
    tarn_library library;
    pthread_t threads[4];
    assert_non_null(mkdtemp(place));
    snprintf(path, sizeof path, "%s/libslowly.so.1", place);
    assert_int_equal(mkfifo(path, 0600) || setenv("TARN_LIBRARY_PATH", place, 1), 0);
    assert_ok(tarn_library_register(&row, &library));
    assert_int_equal(pthread_barrier_init(&all_made, NULL, 5), 0);
    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, ask_for, &library), 0);
    alarm(60);
    pthread_barrier_wait(&all_made);
    for (int i = 0; atomic_load(&answers) < 4; i++) {
        usleep(i ? 1000 : 50000); /* first until they wait, most likely */
        int file = open(path, O_WRONLY | O_NONBLOCK | O_CLOEXEC);
        if (file >= 0)
            close(file);
    }
    alarm(0);
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    pthread_barrier_destroy(&all_made);
    assert_int_equal(unsetenv("TARN_LIBRARY_PATH") || unlink(path) || rmdir(place), 0);
}

static void test_numbers_run_out(void **state)
{
    (void)state;
    char name[16];
    tarn_library_row row = {
        .size = sizeof row, .name = name, .create = fake_create, .destroy = fake_destroy};
    tarn_library library = 0;
    tarn_status status = TARN_OK;
    for (int i = 0; i < 100 && !status; i++) {
        snprintf(name, sizeof name, "many%d", i);
        status = tarn_library_register(&row, &library);
    }
    assert_int_equal(status, TARN_ERROR_NOT_SUPPORTED);
    assert_int_equal(library, TARN_MAX_LIBRARIES);
    assert_non_null(get(library));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_built_in),
        TEST(test_checked_rows_name_checked_symbols),
        TEST(test_missing),
        TEST(test_symbols_missing),
        TEST(test_registered_is_checked),
        TEST(test_needs_another_driver),
        TEST(test_create_takes_a_number),
        TEST(test_failed_handle_is_real),
        TEST(test_directories),
        TEST(test_broken_files),
        TEST(test_what_the_program_loads_later),
        TEST(test_a_long_path),
        TEST(test_memory_of_libraries),
        TEST(test_found_by_another_thread),
        TEST(test_numbers_run_out), /* the last */
    };
    host_start(1, 256 * MIB);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
