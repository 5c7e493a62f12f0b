/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Shares that were made by hand, to deceive who imports them: well formed as messages, with files that are not what they say. Each case
 * runs in a process of its own; what is refused leaves no file open and nothing mapped. */
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
    } rights = {.header = {.cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS, .cmsg_len = CMSG_LEN(sizeof(int))}};
    struct iovec all = {&chunk, sizeof chunk};
    struct msghdr message = {
        .msg_iov = &all, .msg_iovlen = 1, .msg_control = &rights, .msg_controllen = sizeof rights.room};
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

/* Files that come with a share and are none of it are closed; those that could not come are said to be lost. */
static void more_files_than_a_share_has(void)
{
    enum { SENT = 150 };
    const struct share_head head = head_of(GRANULE);
    struct chunk chunk = {.magic = SHARE_MAGIC, .count = 1, .sizes = {GRANULE}};
    union {
        struct cmsghdr header;
        char room[CMSG_SPACE(SENT * sizeof(int))];
    } rights = {
        .header = {.cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS, .cmsg_len = CMSG_LEN(SENT * sizeof(int))}};
    struct iovec all = {&chunk, sizeof chunk};
    struct msghdr message = {
        .msg_iov = &all, .msg_iovlen = 1, .msg_control = &rights, .msg_controllen = sizeof rights.room};
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
    CHECK(send(ends[0], &head, sizeof head, 0) == sizeof head && sendmsg(ends[0], &message, 0) == sizeof chunk);
    GIVES(tarn_share_receive(ends[1], &share), TARN_ERROR_SYSTEM);
    CHECK(strstr(tarn_last_error(), "files were lost") && open_files() == open);

    rights.header.cmsg_len = CMSG_LEN(sizeof(int)); /* one, for which there is no room */
    message.msg_controllen = CMSG_SPACE(sizeof(int));
    CHECK(send(ends[0], &head, sizeof head, 0) == sizeof head && sendmsg(ends[0], &message, 0) == sizeof chunk);
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
    refused(sealed_file(GRANULE, 0, F_SEAL_GROW), sealed);                  /* could shrink under a mapping */
    refused(sealed_file(GRANULE / 2, 0, F_SEAL_SHRINK), "bytes, and");      /* ends before it should */
    refused(sealed_file(2 * GRANULE, 0, F_SEAL_SHRINK), "bytes, and");      /* shows more */
    refused(sealed_file(GRANULE, 0, F_SEAL_SHRINK | F_SEAL_WRITE), sealed); /* cannot be written to */
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
    CHECK(file >= 0 && ftruncate(file, GRANULE) == 0 && fcntl(file, F_ADD_SEALS, F_SEAL_SHRINK) == 0);
    refused(file, "it is not a memfd of a sealed size");
}

/* Who knows what another's share says of itself cannot have its own memory taken for that one's. */
static void a_share_that_says_the_same_is_other_memory(void)
{
    const struct share_head head = head_of(GRANULE);
    char *first = NULL, *again = NULL, *other = NULL;
    host_start_with(1, 64 * MIB);
    int honest = sealed_file(GRANULE, 0, F_SEAL_SHRINK), forged = sealed_file(GRANULE, 0, F_SEAL_SHRINK);
    CHECK(pwrite(honest, "honest", 6, 0) == 6 && pwrite(forged, "forged", 6, 0) == 6);
    tarn_share *shares[] = {received(&head, honest), received(&head, forged), received(&head, honest)};
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
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
