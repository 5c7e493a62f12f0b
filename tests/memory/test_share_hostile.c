/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Shares that were made by hand, to deceive who imports them: well formed as messages, with files
 * that are not what they say. Each case runs in a process of its own; what is refused leaves no
 * file open and nothing mapped. */
#include "memory/share/share.h"
#include "memory/share_test.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#define GRANULE (2 * MIB)

struct chunk { /* as wire.c sends it */
    uint64_t magic;
    uint32_t first, count;
    uint64_t sizes[128];
};

static struct share_head head_of(uint64_t bytes)
{
    return (struct share_head){.magic = SHARE_MAGIC,
                               .version = SHARE_VERSION,
                               .parts = 1,
                               .bytes = bytes,
                               .mapped = bytes,
                               .id = {77, 0x10000},
                               .generation = 5,
                               .driver = "host"};
}

/* Sends what is said to be a share of one part, and receives it. */
static tarn_share *received(const struct share_head *head, int file)
{
    int ends[2];
    tarn_share *share = NULL;
    struct chunk chunk = {.magic = SHARE_MAGIC, .count = 1, .sizes = {head->mapped}};
    union {
        struct cmsghdr header;
        char room[CMSG_SPACE(sizeof(int))];
    } rights = {.header = {.cmsg_level = SOL_SOCKET,
                           .cmsg_type = SCM_RIGHTS,
                           .cmsg_len = CMSG_LEN(sizeof(int))}};
    struct iovec all = {&chunk, sizeof chunk};
    struct msghdr message = {.msg_iov = &all,
                             .msg_iovlen = 1,
                             .msg_control = &rights,
                             .msg_controllen = sizeof rights.room};
    memcpy(CMSG_DATA(&rights.header), &file, sizeof file);
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
    CHECK(send(ends[0], head, sizeof *head, 0) == sizeof *head);
    CHECK(sendmsg(ends[0], &message, 0) == sizeof chunk);
    OK(tarn_share_receive(ends[1], &share));
    close(ends[0]);
    close(ends[1]);
    return share;
}

static int sealed_file(size_t size, unsigned flags, int seals)
{
    int file = memfd_create("made by hand", MFD_CLOEXEC | MFD_ALLOW_SEALING | flags);
    CHECK(file >= 0 && ftruncate(file, (off_t)size) == 0 && fcntl(file, F_ADD_SEALS, seals) == 0);
    return file;
}

static void refused(int file, const char *part)
{
    const struct share_head head = head_of(GRANULE);
    void *pointer = NULL;
    int before = open_files();
    tarn_share *share = received(&head, file);
    CHECK(tarn_import(share, 0, &pointer) != TARN_OK && !pointer);
    CHECK(strstr(tarn_last_error(), part));
    OK(tarn_share_close(share));
    CHECK(open_files() == before);
    CHECK(ledger_of(0).mappings == 0 && ledger_of(0).mapped == 0);
    close(file);
}

/* Files that come with a share and are none of it are closed; those that could not come are said to
 * be lost. */
static void more_files_than_a_share_has(void)
{
    enum { SENT = 150 };
    const struct share_head head = head_of(GRANULE);
    struct chunk chunk = {.magic = SHARE_MAGIC, .count = 1, .sizes = {GRANULE}};
    union {
        struct cmsghdr header;
        char room[CMSG_SPACE(SENT * sizeof(int))];
    } rights = {.header = {.cmsg_level = SOL_SOCKET,
                           .cmsg_type = SCM_RIGHTS,
                           .cmsg_len = CMSG_LEN(SENT * sizeof(int))}};
    struct iovec all = {&chunk, sizeof chunk};
    struct msghdr message = {.msg_iov = &all,
                             .msg_iovlen = 1,
                             .msg_control = &rights,
                             .msg_controllen = sizeof rights.room};
    struct rlimit before, less;
    int ends[2], files[SENT];
    host_start_with(1, 64 * MIB);
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
    files[0] = sealed_file(GRANULE, 0, F_SEAL_SHRINK);
    for (int i = 1; i < SENT; i++)
        files[i] = files[0];
    memcpy(CMSG_DATA(&rights.header), files, sizeof files);
    int open = open_files();
    tarn_share *share = NULL;
    CHECK(send(ends[0], &head, sizeof head, 0) == sizeof head &&
          sendmsg(ends[0], &message, 0) == sizeof chunk);
    GIVES(tarn_share_receive(ends[1], &share), TARN_ERROR_SYSTEM);
    CHECK(strstr(tarn_last_error(), "files were lost") && open_files() == open);

    rights.header.cmsg_len = CMSG_LEN(sizeof(int)); /* one, for which there is no room */
    message.msg_controllen = CMSG_SPACE(sizeof(int));
    CHECK(send(ends[0], &head, sizeof head, 0) == sizeof head &&
          sendmsg(ends[0], &message, 0) == sizeof chunk);
    CHECK(getrlimit(RLIMIT_NOFILE, &before) == 0);
    less = (struct rlimit){.rlim_cur = 3, .rlim_max = before.rlim_max};
    CHECK(setrlimit(RLIMIT_NOFILE, &less) == 0);
    tarn_status status = tarn_share_receive(ends[1], &share);
    CHECK(setrlimit(RLIMIT_NOFILE, &before) == 0);
    GIVES(status, TARN_ERROR_SYSTEM);
    CHECK(strstr(tarn_last_error(), "ulimit -n") && !share && open_files() == open);
    close(files[0]);
    close(ends[0]);
    close(ends[1]);
}

static void files_that_are_no_pieces_are_refused(void)
{
    static const char sealed[] = "it is not a memfd of a sealed size";
    host_start_with(1, 64 * MIB);
    void *block = alloc_on(TARN_STREAM_LEGACY, 1);
    OK(tarn_free(block));
    OK(tarn_device_trim(0, 0));
    int pipes[2];
    CHECK(pipe(pipes) == 0);
    refused(pipes[0], sealed);
    close(pipes[1]);
    refused(open("/dev/zero", O_RDWR | O_CLOEXEC), sealed);
    refused(open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC), sealed);
    refused(open("/", O_PATH | O_CLOEXEC), "host import");
    refused(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0), sealed);
    /* Could shrink under a mapping */
    refused(sealed_file(GRANULE, 0, F_SEAL_GROW), sealed);
    /* Ends before it should */
    refused(sealed_file(GRANULE / 2, 0, F_SEAL_SHRINK), "bytes, and");
    refused(sealed_file(2 * GRANULE, 0, F_SEAL_SHRINK), "bytes, and"); /* shows more */
    /* Cannot be written to */
    refused(sealed_file(GRANULE, 0, F_SEAL_SHRINK | F_SEAL_WRITE), sealed);
    char path[64];
    int file = sealed_file(GRANULE, 0, F_SEAL_SHRINK);
    snprintf(path, sizeof path, "/proc/self/fd/%d", file);
    refused(open(path, O_RDONLY | O_CLOEXEC), sealed);
    close(file);
    nothing_is_left(0);
}

/* A touch of huge pages ends the process when there are none: most machines have none. */
static void files_of_huge_pages_are_refused(void)
{
    host_start_with(1, 64 * MIB);
    int file = memfd_create("huge", MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_HUGETLB);
    if (file < 0 && (errno == ENOSYS || errno == ENODEV || errno == EINVAL || errno == EPERM))
        return; /* a kernel without them has nothing that could be sent */
    CHECK(file >= 0 && ftruncate(file, GRANULE) == 0 &&
          fcntl(file, F_ADD_SEALS, F_SEAL_SHRINK) == 0);
    refused(file, "it is not a memfd of a sealed size");
}

/* Who knows what another's share says of itself cannot have its own memory taken for that one's. */
static void a_share_that_says_the_same_is_other_memory(void)
{
    const struct share_head head = head_of(GRANULE);
    char *first = NULL, *again = NULL, *other = NULL;
    host_start_with(1, 64 * MIB);
    int honest = sealed_file(GRANULE, 0, F_SEAL_SHRINK),
        forged = sealed_file(GRANULE, 0, F_SEAL_SHRINK);
    CHECK(pwrite(honest, "honest", 6, 0) == 6 && pwrite(forged, "forged", 6, 0) == 6);
    tarn_share *shares[] = {received(&head, honest), received(&head, forged),
                            received(&head, honest)};
    OK(tarn_import(shares[0], 0, (void **)&first));
    OK(tarn_import(shares[1], 0, (void **)&other));
    OK(tarn_import(shares[2], 0, (void **)&again));
    CHECK(first == again && first != other);
    CHECK(memcmp(first, "honest", 6) == 0 && memcmp(other, "forged", 6) == 0);
    OK(tarn_import_close(first));
    OK(tarn_import_close(other));
    OK(tarn_import_close(again));
    GIVES(tarn_import_close(again), TARN_ERROR_INVALID_POINTER);
    for (int i = 0; i < 3; i++)
        OK(tarn_share_close(shares[i]));
    nothing_is_left(0);
}

/* What the exporter does to its file later cannot end the importer. */
static void an_import_outlives_what_its_sender_does(void)
{
    const struct share_head head = head_of(GRANULE);
    volatile char *memory = NULL;
    host_start_with(1, 64 * MIB);
    int file = sealed_file(GRANULE, 0, F_SEAL_SHRINK);
    tarn_share *share = received(&head, file);
    OK(tarn_import(share, 0, (void **)(uintptr_t)&memory));
    OK(tarn_share_close(share));
    memory[GRANULE - 1] = 7;
    CHECK(ftruncate(file, 0) == -1 && errno == EPERM);
    CHECK(fallocate(file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, GRANULE) == 0);
    CHECK(memory[GRANULE - 1] == 0); /* and not SIGBUS */
    CHECK(ftruncate(file, 2 * GRANULE) == 0);
    memory[0] = 1;
    close(file);
    memory[1] = 1;
    OK(tarn_import_close((void *)(uintptr_t)memory));
    nothing_is_left(0);
}

/* ---- Pools ---- */

struct pool_chunk { /* as wire.c sends it */
    uint64_t magic;
    uint32_t first, count;
    struct {
        uint64_t size, address, generation, has_file;
    } parts[128];
};

/* A pool's share as it goes over the wire: the files are the board, and those of the parts. */
struct pool_wire {
    struct share_head head;
    struct pool_chunk chunk;
    int board, files[8];
    int head_files, chunk_files; /* how many go along */
};

static void send_with(int socket, const void *bytes, size_t size, const int *files, int count)
{
    union {
        struct cmsghdr header;
        char room[CMSG_SPACE(8 * sizeof(int))];
    } rights = {.header = {.cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS}};
    struct iovec all = {(void *)(uintptr_t)bytes, size};
    struct msghdr message = {.msg_iov = &all, .msg_iovlen = 1};
    if (count > 0) {
        rights.header.cmsg_len = CMSG_LEN((size_t)count * sizeof(int));
        message.msg_control = &rights;
        message.msg_controllen = CMSG_SPACE((size_t)count * sizeof(int));
        memcpy(CMSG_DATA(&rights.header), files, (size_t)count * sizeof(int));
    }
    CHECK(sendmsg(socket, &message, MSG_NOSIGNAL) == (ssize_t)size);
}

/* Sends it, at most `bytes` of it, and imports what comes. What is refused, here or at the end,
 * leaves nothing. */
static tarn_status try_pool(const struct pool_wire *wire, size_t bytes)
{
    int ends[2], before = open_files();
    size_t head = bytes < sizeof wire->head ? bytes : sizeof wire->head, rest = bytes - head;
    tarn_share *share = NULL;
    tarn_imported_pool *imported = NULL;
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
    const int boards[] = {wire->board, wire->board};
    send_with(ends[0], &wire->head, head, boards, wire->head_files);
    if (rest)
        send_with(ends[0], &wire->chunk, rest, wire->files, wire->chunk_files);
    close(ends[0]);
    tarn_status status = tarn_share_receive(ends[1], &share);
    close(ends[1]);
    CHECK((status == TARN_OK) == (share != NULL));
    if (!status)
        status = tarn_pool_import(share, 0, &imported);
    CHECK((status == TARN_OK) == (imported != NULL));
    OK(tarn_imported_pool_close(imported));
    OK(tarn_share_close(share));
    CHECK(open_files() == before && ledger_of(0).mappings == 0 && ledger_of(0).mapped == 0);
    return status;
}

static struct pool_wire right_pool(void)
{
    struct pool_wire wire = {.head = head_of(2 * GRANULE), .head_files = 1, .chunk_files = 2};
    wire.head.magic = SHARE_MAGIC_POOL;
    wire.head.parts = 2;
    wire.chunk.magic = SHARE_MAGIC_POOL;
    wire.chunk.count = 2;
    for (unsigned i = 0; i < 2; i++) {
        wire.files[i] = sealed_file(GRANULE, 0, F_SEAL_SHRINK);
        wire.chunk.parts[i].size = GRANULE;
        wire.chunk.parts[i].address = 0x7000000 + i * GRANULE;
        wire.chunk.parts[i].generation = 3 + i;
        wire.chunk.parts[i].has_file = 1;
    }
    wire.board = sealed_file(4096, 0, F_SEAL_SHRINK);
    CHECK(pwrite(wire.board, "1trboard", 8, 0) == 8);
    return wire;
}

static void is_damaged(const struct pool_wire *wire)
{
    tarn_status status = try_pool(wire, sizeof wire->head + sizeof wire->chunk);
    CHECK(status == TARN_ERROR_INVALID_ARGUMENT || status == TARN_ERROR_NOT_SUPPORTED ||
          status == TARN_ERROR_SYSTEM);
}

#define WRONG(change)              \
    do {                           \
        struct pool_wire w = wire; \
        change;                    \
        is_damaged(&w);            \
    } while (0)

static void pools_that_are_damaged_are_refused(void)
{
    host_start_with(1, 64 * MIB);
    OK(tarn_free(alloc_on(TARN_STREAM_LEGACY, 1)));
    OK(tarn_device_trim(0, 0));
    const struct pool_wire wire = right_pool();
    const size_t all = sizeof wire.head + sizeof wire.chunk;
    OK(try_pool(&wire, all));
    for (size_t bytes = 1; bytes < all; bytes += 41) /* cut off */
        GIVES(try_pool(&wire, bytes), TARN_ERROR_SYSTEM);
    WRONG(w.head_files = 0);
    WRONG(w.head_files = 2);
    WRONG(w.chunk_files = 1);
    WRONG(w.chunk_files = 3; w.files[2] = w.files[0]);
    WRONG(w.head.magic = SHARE_MAGIC);
    WRONG(w.head.magic = SHARE_MAGIC; w.head_files = 0);
    WRONG(w.head.version++);
    WRONG(w.head.parts = 1);
    WRONG(w.head.parts = 3);
    WRONG(w.head.parts = SHARE_MOST_PARTS + 1);
    WRONG(w.head.bytes--);
    WRONG(w.head.mapped++);
    WRONG(w.head.bytes = w.head.mapped = SIZE_MAX);
    WRONG(w.head.offset = 512);
    WRONG(w.head.device = -1);
    WRONG(strcpy(w.head.driver, "cuda"));
    WRONG(w.chunk.magic = SHARE_MAGIC);
    WRONG(w.chunk.first = 1);
    WRONG(w.chunk.count = 1);
    WRONG(w.chunk.count = 129);
    WRONG(w.chunk.parts[0].size = 0);
    WRONG(w.chunk.parts[1].size *= 2);
    WRONG(w.chunk.parts[0].size++; w.chunk.parts[1].size--);
    WRONG(w.chunk.parts[0].address = 0);
    WRONG(w.chunk.parts[0].address = w.chunk.parts[1].address);
    WRONG(w.chunk.parts[1].address--);
    WRONG(w.chunk.parts[1].address = UINT64_MAX - 5);
    WRONG(w.chunk.parts[1].generation = 0);
    WRONG(w.chunk.parts[1].has_file = 2);
    WRONG(w.chunk.parts[1].has_file = UINT64_MAX);
    WRONG(w.chunk.parts[1].has_file = 0; w.chunk_files = 1); /* for one who has it */
    /* Whatever it means, it leaves nothing */
    for (size_t at = 0; at < sizeof wire.head + 16 + 64; at++) {
        struct pool_wire w = wire;
        ((unsigned char *)&w)[at] ^= (unsigned char)(1U << at % 8);
        (void)try_pool(&w, all);
    }

    /* The second segment fails: the first one goes again. */
    int pipes[2];
    CHECK(pipe(pipes) == 0);
    WRONG(w.files[1] = pipes[0]);
    WRONG(w.files[1] = sealed_file(2 * GRANULE, 0, F_SEAL_SHRINK); is_damaged(&w);
          close(w.files[1]); w.files[1] = pipes[1]);

    /* Files that are no boards. */
    WRONG(w.board = pipes[0]);
    WRONG(w.board = w.files[0]); /* a piece */
    int small = sealed_file(4095, 0, F_SEAL_SHRINK), loose = sealed_file(4096, 0, F_SEAL_GROW);
    WRONG(w.board = small);
    WRONG(w.board = loose);
    int files[] = {small, loose, pipes[0], pipes[1], wire.board, wire.files[0], wire.files[1]};
    for (size_t i = 0; i < sizeof files / sizeof *files; i++)
        close(files[i]);
    nothing_is_left(0);
}

/* An importer cannot write to what the exporter says. */
static void a_board_is_the_exporters_to_write(void)
{
    static const char other[8] = "changed";
    host_start_with(1, 64 * MIB);
    tarn_pool *pool = pool_with((tarn_pool_options){.device = 0, .registrable = true});
    tarn_share *share = NULL;
    tarn_imported_pool *imported = NULL;
    tarn_import_state state = TARN_IMPORT_ORPHANED;
    OK(tarn_pool_export(pool, NULL, &share));
    OK(tarn_pool_import(share, 0, &imported));
    int board = share_board(share);
    char path[32];
    snprintf(path, sizeof path, "/proc/self/fd/%d", board);
    CHECK((fcntl(board, F_GETFL) & O_ACCMODE) == O_RDONLY); /* what comes with a share */
    struct stat about;
    CHECK(fstat(board, &about) == 0 && (about.st_mode & 0777) == 0444);
    /* The same user may */
    CHECK(fchmod(board, 0600) == 0 && (board = open(path, O_RDWR | O_CLOEXEC)) >= 0);
    CHECK(ftruncate(board, 0) == -1 && errno == EPERM);
    if (fcntl(board, F_GET_SEALS) & 0x10) /* F_SEAL_FUTURE_WRITE, which old kernels do not have */
        CHECK(pwrite(board, other, sizeof other, 16) == -1 && errno == EPERM);
    close(board);
    OK(tarn_imported_pool_state_get(imported, &state));
    CHECK(state == TARN_IMPORT_CURRENT);
    OK(tarn_imported_pool_close(imported));
    OK(tarn_share_close(share));
    OK(tarn_pool_release(pool));
    nothing_is_left(0);
}

static void test_pools(void **state)
{
    (void)state;
    in_child(pools_that_are_damaged_are_refused);
    in_child(a_board_is_the_exporters_to_write);
}

static void test_files(void **state)
{
    (void)state;
    in_child(files_that_are_no_pieces_are_refused);
    in_child(files_of_huge_pages_are_refused);
    in_child(more_files_than_a_share_has);
}

static void test_names(void **state)
{
    (void)state;
    in_child(a_share_that_says_the_same_is_other_memory);
}

static void test_later(void **state)
{
    (void)state;
    in_child(an_import_outlives_what_its_sender_does);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_files),
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_later),
        cmocka_unit_test(test_pools),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
