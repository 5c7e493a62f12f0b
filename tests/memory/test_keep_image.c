/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Kept pools as files. What is saved is loaded again, every byte and every name; a file with any
 * fault is refused and changes nothing; saves beside changes have whole blocks only. */
#include "base/pages.h"
#include "driver/driver.h"
#include "driver/host/host.h"
#include "keep_generations.h"
#include "memory/pool/contents.h"
#include "support/system.h"

#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <time.h>

#include <cmocka.h>

#define DEVICE_BYTES (512 * MIB)

static char path[100];

static int open_image(int how)
{
    int file = open(path, how | O_CREAT | O_CLOEXEC, 0600);
    CHECK(file >= 0);
    return file;
}

static tarn_status save(tarn_pool *pool)
{
    int file = open_image(O_RDWR);
    tarn_status status = tarn_pool_save(pool, file);
    close(file);
    return status;
}

static tarn_status load(tarn_pool *pool)
{
    int file = open_image(O_RDONLY);
    tarn_status status = tarn_pool_load(pool, file);
    close(file);
    return status;
}

static char *sealed_block(tarn_pool *pool, const char *name, size_t size, int seed)
{
    unsigned char data[TARN_KEEP_DATA_BYTES] = {0};
    char *block = alloc_in(pool, 0, size);
    fill(block, size, seed);
    memcpy(data, &seed, sizeof seed);
    OK(tarn_pool_block_seal(block, name, data, NULL));
    return block;
}

/* A pool with the blocks of both_are_whole(), one of 700 bytes, and one that is not sealed. */
static tarn_pool *filled_pool(const char *name)
{
    tarn_kept kept;
    tarn_pool *pool = keep(name, &kept);
    CHECK(!kept.blocks);
    fill(sealed_block(pool, "first", 3 * MIB + 100, 3), 3 * MIB, 3);
    fill(alloc_in(pool, 0, 5 * MIB), 5 * MIB, 4);
    (void)sealed_block(pool, "second", 20 * MIB, 9);
    (void)sealed_block(pool, "small", 700, 5);
    return pool;
}

static void free_sealed(tarn_pool *pool)
{
    OK(tarn_free(found(pool, "first").pointer));
    OK(tarn_free(found(pool, "second").pointer));
    OK(tarn_free(found(pool, "small").pointer));
}

/* Ends a pool of filled_pool(). */
static void end_filled(tarn_pool *pool)
{
    tarn_pool_block blocks[8];
    size_t count = 0;
    OK(tarn_pool_blocks_get(pool, blocks, 8, &count));
    for (size_t i = 0; i < count; i++)
        OK(tarn_free(blocks[i].address));
    OK(tarn_pool_release(pool));
    nothing_is_left(0);
}

static void is_loaded(tarn_pool *pool)
{
    tarn_sealed_block small = found(pool, "small");
    CHECK(both_are_whole(pool) && small.bytes == 700 && holds(small.pointer, 700, 5));
    CHECK(small.data[0] == 5 && found(pool, "first").data[0] == 3);
}

/* ---- Tests ---- */

static void what_is_saved_is_loaded(void **state)
{
    (void)state;
    const struct contents_staging usual = contents_staging;
    for (int staged = 0; staged < 2; staged++) {
        if (staged)
            contents_staging = (struct contents_staging){.least = MIB, .chunk = MIB / 2};
        tarn_pool *pool = filled_pool("weights");
        OK(save(pool));
        end_filled(pool);
        tarn_kept kept;
        pool = keep("others", &kept);
        OK(load(pool));
        is_loaded(pool);
        CHECK(stats_of(0).allocation[0].current == 3);
        OK(save(pool)); /* over the file before */
        free_sealed(pool);
        OK(load(pool));
        is_loaded(pool);
        free_sealed(pool);
        OK(tarn_pool_release(pool));
        nothing_is_left(0);
    }
    contents_staging = usual;
}

static void a_pool_without_blocks_is_a_file_too(void **state)
{
    (void)state;
    tarn_kept kept;
    tarn_pool *pool = keep("weights", &kept);
    OK(save(pool));
    OK(load(pool));
    OK(tarn_pool_release(pool));
    nothing_is_left(0);
}

/* Zeros take no room on the disk. */
static void zeros_become_holes(void **state)
{
    (void)state;
    struct stat about;
    tarn_kept kept;
    tarn_pool *pool = keep("weights", &kept);
    char *block = alloc_in(pool, 0, 64 * MIB);
    memset(block, 0, 64 * MIB);
    block[40 * MIB] = 1;
    OK(tarn_pool_block_seal(block, "zeros", NULL, NULL));
    OK(save(pool));
    CHECK(stat(path, &about) == 0 && about.st_size > (off_t)(64 * MIB));
    CHECK(about.st_blocks * 512 < (blkcnt_t)MIB);
    OK(tarn_free(block));
    OK(load(pool));
    block = found(pool, "zeros").pointer;
    CHECK(block[40 * MIB] == 1 && block[0] == 0 && block[64 * MIB - 1] == 0);
    OK(tarn_free(block));
    OK(tarn_pool_release(pool));
    nothing_is_left(0);
}

/* A load that is refused, with a word of its reason, has changed nothing. */
static void refused(tarn_pool *pool, const char *why)
{
    size_t before = reserved();
    GIVES(load(pool), TARN_ERROR_INVALID_ARGUMENT);
    CHECK(strstr(tarn_last_error(), why));
    CHECK(stats_of(0).allocation[0].current == 0 && reserved() == before);
}

static void write_byte(off_t at, unsigned char byte)
{
    int file = open_image(O_RDWR);
    CHECK(pwrite(file, &byte, 1, at) == 1);
    close(file);
}

static unsigned char read_byte(off_t at)
{
    unsigned char byte;
    int file = open_image(O_RDWR);
    CHECK(pread(file, &byte, 1, at) == 1);
    close(file);
    return byte;
}

static void a_broken_file_is_refused(void **state)
{
    (void)state;
    struct stat about;
    tarn_kept kept;
    tarn_pool *pool = filled_pool("weights");
    OK(save(pool));
    end_filled(pool);
    pool = keep("weights", &kept);
    CHECK(stat(path, &about) == 0);
    /* Each byte of the head, and some of the table and of the contents of a block. */
    off_t head = 40, table = head + 3 * (off_t)(2 * 64 + 24), contents = 4096 + (off_t)(3 * MIB);
    for (off_t at = 0; at < contents; at += at < head ? 1 : at < table ? 7 : (off_t)MIB / 3 + 1) {
        if (at >= table && at < 4096)
            continue;
        unsigned char byte = read_byte(at);
        write_byte(at, byte ^ 1);
        refused(pool, at < table ? "" : "checksum");
        write_byte(at, byte);
    }
    OK(load(pool));
    is_loaded(pool);
    free_sealed(pool);
    CHECK(truncate(path, about.st_size - 1) == 0);
    refused(pool, "size");
    for (off_t size = about.st_size - 1; size >= 65536; size -= 65536) {
        CHECK(truncate(path, size / 65536 * 65536) == 0);
        refused(pool, "size");
    }
    CHECK(truncate(path, about.st_size) == 0);
    refused(pool, "checksum");
    CHECK(truncate(path, 50) == 0);
    refused(pool, "size");
    CHECK(truncate(path, 39) == 0);
    refused(pool, "too short");
    CHECK(truncate(path, 0) == 0);
    refused(pool, "too short");
    CHECK(truncate(path, 100000) == 0);
    refused(pool, "begins otherwise");
    OK(tarn_pool_release(pool));
    nothing_is_left(0);
}

static void a_descriptor_must_be_one_of_a_file(void **state)
{
    (void)state;
    int ends[2], folder = open("/tmp", O_RDONLY), reads = open_image(O_RDONLY),
                 writes = open_image(O_WRONLY), names = open_image(O_PATH);
    tarn_kept kept;
    tarn_pool *pool = keep("weights", &kept), *other = NULL;
    CHECK(pipe(ends) == 0 && folder >= 0);
    int wrong[] = {-1, 100000, folder, ends[0], ends[1], writes, names};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        GIVES(tarn_pool_save(pool, wrong[i]), TARN_ERROR_INVALID_ARGUMENT);
        GIVES(tarn_pool_load(pool, wrong[i]), TARN_ERROR_INVALID_ARGUMENT);
    }
    for (int i = 0; i < 3; i++) {
        GIVES(tarn_pool_save(pool, (int[]){reads, writes, names}[i]), TARN_ERROR_INVALID_ARGUMENT);
        CHECK(strstr(tarn_last_error(), "not open for reading and writing"));
    }
    for (int i = 0; i < 2; i++) {
        GIVES(tarn_pool_load(pool, i ? names : writes), TARN_ERROR_INVALID_ARGUMENT);
        CHECK(strstr(tarn_last_error(), "not open for reading"));
    }
    OK(tarn_pool_create(NULL, &other));
    GIVES(tarn_pool_save(other, reads), TARN_ERROR_INVALID_ARGUMENT);
    CHECK(strstr(tarn_last_error(), "tarn_pool_keep()"));
    GIVES(tarn_pool_load(other, reads), TARN_ERROR_INVALID_ARGUMENT);
    OK(tarn_pool_release(other));
    OK(tarn_pool_release(pool));
    for (int i = 0; i < 2; i++)
        close(ends[i]);
    close(folder);
    close(reads);
    close(writes);
    close(names);
}

static void a_name_that_the_pool_has_is_refused(void **state)
{
    (void)state;
    tarn_pool *pool = filled_pool("weights");
    OK(save(pool));
    OK(tarn_free(found(pool, "first").pointer));
    OK(tarn_free(found(pool, "small").pointer));
    uint64_t blocks = (uint64_t)stats_of(0).allocation[0].current;
    GIVES(load(pool), TARN_ERROR_INVALID_ARGUMENT);
    CHECK(strstr(tarn_last_error(), "\"second\""));
    CHECK((uint64_t)stats_of(0).allocation[0].current == blocks);
    tarn_sealed_block none = {.size = sizeof none};
    GIVES(tarn_pool_block_find(pool, "first", &none), TARN_ERROR_INVALID_ARGUMENT);
    end_filled(pool);
}

static off_t size_of_file(void)
{
    struct stat about;
    CHECK(stat(path, &about) == 0);
    return about.st_size;
}

/* By default the signal of a file that may not grow ends the program. */
static void a_full_disk_is_said(void **state)
{
    (void)state;
    struct rlimit limit, before;
    tarn_pool *pool = filled_pool("weights");
    CHECK(getrlimit(RLIMIT_FSIZE, &before) == 0);
    limit = before;
    OK(save(pool));
    off_t size = size_of_file();
    for (off_t most = 0; most < size; most += (off_t)MIB + 4096) {
        limit.rlim_cur = (rlim_t)most;
        CHECK(setrlimit(RLIMIT_FSIZE, &limit) == 0);
        tarn_status status = save(pool);
        CHECK(setrlimit(RLIMIT_FSIZE, &before) == 0);
        CHECK(status == TARN_ERROR_SYSTEM && strstr(tarn_last_error(), "(ulimit -f)"));
        CHECK(size_of_file() == 0);
    }
    OK(save(pool));
    CHECK(size_of_file() == size);
    end_filled(pool);
}

/* Of an image that is not to be written nothing is left, and the pool is as it was. */
static void a_file_that_may_not_be_written_says_so(void **state)
{
    (void)state;
    tarn_pool *pool = filled_pool("weights");
    int file = memfd_create("sealed", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    CHECK(file >= 0 && fcntl(file, F_ADD_SEALS, F_SEAL_GROW) == 0);
    GIVES(tarn_pool_save(pool, file), TARN_ERROR_SYSTEM);
    CHECK(strstr(tarn_last_error(), strerror(EPERM)));
    close(file);
    file = memfd_create("sealed", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    OK(tarn_pool_save(pool, file));
    CHECK(fcntl(file, F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW) == 0);
    GIVES(tarn_pool_save(pool, file), TARN_ERROR_SYSTEM);
    free_sealed(pool);
    OK(tarn_pool_load(pool, file)); /* which does not write */
    close(file);
    is_loaded(pool);
    end_filled(pool);
}

/* The call that gives the file its room fails: a signal comes, as it did in Linux before 6.18, and
 * the call is made again; or the disk is full, or broken. */
static void a_disk_may_have_no_room(void **state)
{
    (void)state;
    tarn_pool *pool = filled_pool("weights");
    int last = system_ways() - 1; /* what is over when the call is repeated */
    system_only("posix_fallocate");
    system_arm(1, false, last);
    OK(save(pool));
    CHECK(system_hits() == 1);
    for (int way = 0; way < last; way++) {
        system_arm(1, false, way);
        GIVES(save(pool), TARN_ERROR_SYSTEM);
        CHECK(strstr(tarn_last_error(), strerror(way ? EIO : ENOSPC)) && size_of_file() == 0);
    }
    system_arm(0, false, 0);
    system_only(NULL);
    OK(save(pool));
    end_filled(pool);
}

static _Atomic unsigned alarms;

static void note_alarm(int signal)
{
    (void)signal;
    alarms++;
}

/* Signals interrupt system calls, some of which the file system then takes back. */
static void signals_do_not_end_a_save(void **state)
{
    (void)state;
    struct sigaction action = {.sa_handler = note_alarm}, before;
    struct itimerval often = {{0, 300}, {0, 300}}, never = {{0, 0}, {0, 0}};
    tarn_pool *pool = filled_pool("weights");
    CHECK(sigaction(SIGALRM, &action, &before) == 0);
    CHECK(setitimer(ITIMER_REAL, &often, NULL) == 0);
    for (int i = 0; i < 5; i++) {
        OK(save(pool));
        free_sealed(pool);
        OK(load(pool));
        is_loaded(pool);
    }
    CHECK(setitimer(ITIMER_REAL, &never, NULL) == 0);
    CHECK(sigaction(SIGALRM, &before, NULL) == 0 && alarms > 10);
    end_filled(pool);
}

static void a_capture_is_not_disturbed(void **state)
{
    (void)state;
    void *graph = NULL;
    tarn_stream stream;
    tarn_pool *pool = filled_pool("weights");
    OK(save(pool));
    OK(tarn_stream_lease(0, 0, &stream));
    OK(tarn_pool_capture_begin(NULL, stream, TARN_CAPTURE_GLOBAL));
    GIVES(save(pool), TARN_ERROR_CAPTURE);
    GIVES(load(pool), TARN_ERROR_CAPTURE);
    OK(tarn_capture_end(stream, &graph));
    OK(driver->graph_destroy(0, graph));
    OK(tarn_stream_return(stream));
    free_sealed(pool);
    OK(load(pool)); /* the file was not touched */
    is_loaded(pool);
    end_filled(pool);
}

/* A driver's call of a kind, or a host allocation, fails: each once. */
static tarn_status failing(tarn_status (*call)(tarn_pool *), tarn_pool *pool, const char *kind,
                           uint64_t nth)
{
    if (kind)
        OK(tarn_host_fail_set(kind_of(kind), nth, false, TARN_ERROR_DRIVER));
    else
        pages_fail(nth, false);
    tarn_status status = call(pool);
    bool hit = kind ? host_fail_hits() != 0 : pages_fail_hits() != 0;
    OK(tarn_host_fail_set(-1, 0, false, TARN_OK));
    pages_fail(0, false);
    CHECK(!status || hit);
    return status;
}

static tarn_status save_anew(tarn_pool *pool)
{
    CHECK(truncate(path, 0) == 0);
    return save(pool);
}

static void a_failure_loses_nothing(void **state)
{
    (void)state;
    if (machine->fail)
        return; /* the simulated vendor's calls are counted otherwise */
    static const char *const kinds[] = {"copy", "create", "map", "stream_synchronize", NULL};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        tarn_pool *pool = filled_pool("weights");
        uint64_t nth = 1;
        for (; failing(save_anew, pool, kinds[i], nth); nth++)
            CHECK(nth < 1000 && size_of_file() == 0);
        free_sealed(pool);
        int64_t live = stats_of(0).allocation[0].current;
        for (nth = 1; failing(load, pool, kinds[i], nth); nth++)
            CHECK(nth < 1000 && stats_of(0).allocation[0].current == live);
        is_loaded(pool);
        end_filled(pool);
    }
}

/* How many mappings of the file this process has. */
static int mappings_of_file(void)
{
    char line[600];
    int count = 0;
    FILE *maps = fopen("/proc/self/maps", "r");
    CHECK(maps != NULL);
    while (fgets(line, sizeof line, maps))
        count += strstr(line, path) != NULL;
    CHECK(fclose(maps) == 0);
    return count;
}

/* A save or a load whose copies cannot be waited for. They may go on, so the mapping stays. */
static void without_an_end(tarn_status (*call)(tarn_pool *), tarn_pool *pool)
{
    tarn_status status = TARN_OK;
    for (uint64_t nth = 1; !mappings_of_file(); nth++) {
        CHECK(nth < 1000);
        OK(tarn_host_fail_set(-1, nth, true, TARN_ERROR_DRIVER));
        status = call(pool);
    }
    CHECK(status == TARN_ERROR_DRIVER);
    OK(tarn_host_fail_set(-1, 0, false, TARN_OK));
    CHECK(mappings_of_file() == 1);
}

/* What comes after it waits for them, and has nothing to do with what they copied. */
static void copies_that_do_not_end_are_waited_for_by_the_next(void **state)
{
    (void)state;
    if (machine->fail)
        return; /* the simulated vendor's calls are counted otherwise */
    static tarn_status (*const calls[])(tarn_pool *) = {save, load};
    for (int first = 0; first < 2; first++)
        for (int next = 0; next < 3; next++) {
            tarn_pool *pool = filled_pool("weights");
            OK(save(pool));
            if (first == 1)
                free_sealed(pool);
            without_an_end(calls[first], pool);
            if (first == 0 && next == 1)
                GIVES(load(pool), TARN_ERROR_INVALID_ARGUMENT); /* a file without a head */
            else if (next < 2)
                OK(calls[next](pool));
            CHECK(mappings_of_file() == (next == 2));
            end_filled(pool);
            CHECK(mappings_of_file() == 0);
        }
}

/* ---- Beside changes ---- */

static _Atomic bool stops;

/* Seals, unseals, rewrites and frees, at random, while another thread saves. */
static void *change(void *argument)
{
    struct live live[NAMES] = {{0}};
    tarn_pool *pool = argument;
    while (!stops) {
        unsigned i = pick(NAMES);
        change_one(pool, &live[i], i);
        if (!pick(20))
            OK(tarn_pool_trim(pool, 0));
    }
    for (unsigned i = 0; i < NAMES; i++)
        OK(tarn_free(live[i].pointer));
    return NULL;
}

static void saves_beside_changes_have_whole_blocks(void **state)
{
    (void)state;
    if (thread_sanitizer)
        return; /* the copy of a block that is written meanwhile is a race, and not in the file */
    bool nightly = getenv("TARN_NIGHTLY") != NULL;
    int count = nightly ? 2000 : 40;
    random_state = nightly ? (unsigned)time(NULL) : 1;
    tarn_kept kept;
    tarn_pool *pool = keep("weights", &kept), *copy = keep("copy", &kept);
    pthread_t thread;
    stops = false;
    CHECK(pthread_create(&thread, NULL, change, pool) == 0);
    for (int saves = 0; saves < count;) { /* with blocks in them */
        struct live live[NAMES] = {{0}};
        OK(save(pool));
        OK(load(copy));
        saves += check_sealed(copy, live) > 0;
        for (unsigned k = 0; k < NAMES; k++)
            OK(tarn_free(live[k].pointer));
    }
    stops = true;
    CHECK(pthread_join(thread, NULL) == 0);
    OK(tarn_pool_release(pool));
    OK(tarn_pool_release(copy));
    nothing_is_left(0);
}

static int begin(void **state)
{
    (void)state;
    host_start_with(1, DEVICE_BYTES);
    keep_name_socket("image");
    /* Each save waits for its disk, so it is one in memory where there is one. */
    snprintf(path, sizeof path, "%s/tarn-image-%d.pool",
             access("/dev/shm", W_OK) ? "/tmp" : "/dev/shm", (int)getpid());
    return owner_begins(state);
}

static int end(void **state)
{
    (void)unlink(path);
    return owner_ends(state);
}

int main(void)
{
    if (!keep_has_program())
        return 0;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_saved_is_loaded),
        cmocka_unit_test(a_pool_without_blocks_is_a_file_too),
        cmocka_unit_test(zeros_become_holes),
        cmocka_unit_test(a_broken_file_is_refused),
        cmocka_unit_test(a_descriptor_must_be_one_of_a_file),
        cmocka_unit_test(a_name_that_the_pool_has_is_refused),
        cmocka_unit_test(a_full_disk_is_said),
        cmocka_unit_test(a_file_that_may_not_be_written_says_so),
        cmocka_unit_test(a_disk_may_have_no_room),
        cmocka_unit_test(signals_do_not_end_a_save),
        cmocka_unit_test(a_capture_is_not_disturbed),
        cmocka_unit_test(a_failure_loses_nothing),
        cmocka_unit_test(copies_that_do_not_end_are_waited_for_by_the_next),
        cmocka_unit_test(saves_beside_changes_have_whole_blocks),
    };
    return cmocka_run_group_tests(tests, begin, end);
}
