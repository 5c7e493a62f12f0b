/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Shares that are refused, and calls on shares that fail: whatever arrives, and whatever does not
 * work, leaves nothing mapped and no file open. */
#include "share_test.h"

#include "base/pages.h"
#include "driver/driver.h"
#include "memory/share/share.h"
#include "support/fail_hits.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

static tarn_stream own;

/* What a share is on the wire: its head, and one chunk. */
struct wire {
    struct share_head head;
    struct {
        uint64_t magic;
        uint32_t first, count;
        uint64_t sizes[128];
    } chunk;
};

static void send_forged(int socket, const struct wire *wire, size_t bytes, const int *files,
                        int count)
{
    union {
        struct cmsghdr header;
        char room[CMSG_SPACE(200 * sizeof(int))];
    } rights = {0};
    size_t head = bytes < sizeof wire->head ? bytes : sizeof wire->head, chunk = bytes - head;
    CHECK(send(socket, &wire->head, head, MSG_NOSIGNAL) == (ssize_t)head);
    if (chunk == 0)
        return;
    struct iovec rest = {(void *)(uintptr_t)&wire->chunk, chunk};
    struct msghdr message = {.msg_iov = &rest, .msg_iovlen = 1};
    if (count > 0) {
        message.msg_control = &rights;
        message.msg_controllen = CMSG_SPACE((size_t)count * sizeof(int));
        struct cmsghdr *header = CMSG_FIRSTHDR(&message);
        header->cmsg_level = SOL_SOCKET;
        header->cmsg_type = SCM_RIGHTS;
        header->cmsg_len = CMSG_LEN((size_t)count * sizeof(int));
        memcpy(CMSG_DATA(header), files, (size_t)count * sizeof(int));
    }
    CHECK(sendmsg(socket, &message, MSG_NOSIGNAL) == (ssize_t)chunk);
}

/* Sends what is no share, and tries to import it. Gives the status of what refused it. */
static tarn_status try_forged(int type, const struct wire *wire, size_t bytes, const int *files,
                              int count)
{
    int ends[2], before = open_files();
    tarn_share *share = NULL;
    void *pointer = NULL;
    CHECK(socketpair(AF_UNIX, type, 0, ends) == 0);
    send_forged(ends[0], wire, bytes, files, count);
    close(ends[0]);
    tarn_status status = tarn_share_receive(ends[1], &share);
    close(ends[1]);
    CHECK((status == TARN_OK) == (share != NULL));
    if (!status) {
        status = tarn_import(share, 0, &pointer);
        CHECK((status == TARN_OK) == (pointer != NULL));
        if (pointer)
            OK(tarn_import_close(pointer));
        OK(tarn_share_close(share));
    }
    CHECK(open_files() == before);
    return status;
}

static void what_is_no_share_is_refused(void **state)
{
    (void)state;
    char *block = alloc_on(own, 2 * PIECE);
    tarn_share *share = export_of(block);
    CHECK(share->head.parts == 1 || share->head.parts == 2);
    int count = (int)share->head.parts, files[200];
    struct wire right = {.head = share->head}, wrong;
    right.chunk.magic = SHARE_MAGIC;
    right.chunk.count = share->head.parts;
    for (int i = 0; i < count; i++) {
        right.chunk.sizes[i] = share->parts[i].size;
        files[i] = share->parts[i].file;
    }
    for (int i = count; i < 200; i++)
        files[i] = files[0];
    verify(0);
    tarn_host_ledger before = ledger_of(0);
    static const int types[] = {SOCK_STREAM, SOCK_SEQPACKET};
    for (int t = 0; t < 2; t++) {
        int type = types[t];
        OK(try_forged(type, &right, sizeof right, files, count));
        for (size_t bytes = 1; bytes < sizeof right; bytes += 7) /* cut off */
            CHECK(try_forged(type, &right, bytes, files, count) ==
                  (type == SOCK_STREAM || bytes == sizeof right.head
                       ? TARN_ERROR_SYSTEM
                       : TARN_ERROR_INVALID_ARGUMENT));
        for (int more = 0; more < 200; more++) { /* another number of files */
            if (more == count)
                continue;
            tarn_status status = try_forged(type, &right, sizeof right, files, more);
            CHECK(status == TARN_ERROR_INVALID_ARGUMENT ||
                  (status == TARN_ERROR_SYSTEM && more > 128));
        }
        for (size_t at = 0; at < sizeof right; at++) { /* each byte that means something, changed */
            if (at >= sizeof right.head + 16 + (size_t)count * 8)
                break;
            bool names =
                at >= offsetof(struct share_head, id) && at < offsetof(struct share_head, device);
            bool number = at >= offsetof(struct share_head, device) &&
                          at < offsetof(struct share_head, driver);
            bool unused =
                at >= offsetof(struct share_head, driver) + sizeof "host" && at < sizeof right.head;
            bool size = at >= offsetof(struct share_head, bytes) &&
                        at < offsetof(struct share_head, mapped);
            for (unsigned bit = 0; bit < 8; bit++) {
                wrong = right;
                ((unsigned char *)&wrong)[at] ^= (unsigned char)(1u << bit);
                tarn_status status = try_forged(type, &wrong, sizeof wrong, files, count);
                if (names || number || unused || size) /* says nothing of the pieces, or still lies
                                                          in them */
                    continue;
                CHECK(status == TARN_ERROR_INVALID_ARGUMENT || status == TARN_ERROR_NOT_SUPPORTED ||
                      status == TARN_ERROR_SYSTEM);
            }
        }
    }
    CHECK(ledger_of(0).mapped == before.mapped && ledger_of(0).created == before.created);
    verify(0);

    /* Files that are no pieces, or pieces of another size. */
    char *small = alloc_on(own, 512);
    tarn_share *little = export_of(small);
    int wrong_files[200];
    memcpy(wrong_files, files, sizeof files);
    wrong_files[count - 1] = little->parts[0].file;
    CHECK(try_forged(SOCK_STREAM, &right, sizeof right, wrong_files, count) ==
          TARN_ERROR_INVALID_ARGUMENT);
    int ends[2];
    CHECK(pipe(ends) == 0);
    wrong_files[count - 1] = ends[0];
    CHECK(try_forged(SOCK_STREAM, &right, sizeof right, wrong_files, count) ==
          TARN_ERROR_INVALID_ARGUMENT);
    close(ends[0]);
    close(ends[1]);
    verify(0);
    OK(tarn_share_close(little));
    OK(tarn_share_close(share));
    OK(tarn_free(small));
    OK(tarn_free(block));
    nothing_is_left(0);
}

static void wrong_arguments_are_refused(void **state)
{
    (void)state;
    char *block = alloc_on(own, PIECE), *plain = alloc_on(lease(1), PIECE);
    tarn_share *share = export_of(block), *none = NULL;
    tarn_share_info info = {.size = sizeof info - 1};
    void *pointer = NULL;
    int ends[2];
    GIVES(tarn_export(block, NULL), TARN_ERROR_INVALID_ARGUMENT);
    GIVES(tarn_export(NULL, &none), TARN_ERROR_INVALID_POINTER);
    GIVES(tarn_export(block + 512, &none), TARN_ERROR_INVALID_POINTER);
    GIVES(tarn_export(plain, &none), TARN_ERROR_NOT_SUPPORTED);
    CHECK(strstr(tarn_last_error(), "tarn_export_enable(1)"));
    GIVES(tarn_export_enable(1), TARN_ERROR_BUSY);
    GIVES(tarn_export_enable(9), TARN_ERROR_INVALID_DEVICE);
    OK(tarn_export_enable(0)); /* is already */
    OK(tarn_free(plain));
    OK(tarn_device_trim(1, 0));
    GIVES(tarn_share_info_get(share, &info), TARN_ERROR_INVALID_ARGUMENT);
    GIVES(tarn_share_info_get(NULL, &info), TARN_ERROR_INVALID_ARGUMENT);
    GIVES(tarn_import(NULL, 0, &pointer), TARN_ERROR_INVALID_ARGUMENT);
    GIVES(tarn_import(share, 0, NULL), TARN_ERROR_INVALID_ARGUMENT);
    GIVES(tarn_import(share, 7, &pointer), TARN_ERROR_INVALID_DEVICE);
    CHECK(pipe(ends) == 0);
    GIVES(tarn_share_send(ends[1], share), TARN_ERROR_INVALID_ARGUMENT);
    GIVES(tarn_share_receive(ends[0], &none), TARN_ERROR_INVALID_ARGUMENT);
    close(ends[0]);
    close(ends[1]);
    CHECK(socketpair(AF_UNIX, SOCK_DGRAM, 0, ends) == 0);
    GIVES(tarn_share_send(ends[1], share), TARN_ERROR_INVALID_ARGUMENT);
    close(ends[0]);
    close(ends[1]);
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
    GIVES(tarn_share_send(ends[1], NULL), TARN_ERROR_INVALID_ARGUMENT);
    GIVES(tarn_share_receive(ends[0], NULL), TARN_ERROR_INVALID_ARGUMENT);
    GIVES(tarn_share_send(-1, share), TARN_ERROR_INVALID_ARGUMENT);
    struct timeval limit = {.tv_usec = 1000};
    CHECK(setsockopt(ends[0], SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit) == 0);
    GIVES(tarn_share_receive(ends[0], &none), TARN_ERROR_NOT_READY);
    close(ends[0]);
    GIVES(tarn_share_send(ends[1], share), TARN_ERROR_SYSTEM);
    close(ends[1]);
    CHECK(!none && !pointer);
    OK(tarn_share_close(share));
    OK(tarn_free(block));
    nothing_is_left(0);
}

/* Half a head, byte by byte, and a peer that reads nothing: each in time for a call of the system,
 * and none for the share. */
static void *drip(void *socket)
{
    const char bytes[40] = "1trshare";
    for (size_t i = 0; i < sizeof bytes; i++) {
        if (send(*(int *)socket, bytes + i, 1, MSG_NOSIGNAL) != 1)
            return NULL;
        usleep(50000);
    }
    return NULL;
}

static void a_time_limit_is_for_the_whole_share(void **state)
{
    (void)state;
    const struct timeval limit = {.tv_usec = 200000};
    struct timespec from, to;
    pthread_t thread;
    tarn_share *share = NULL;
    int ends[2];
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
    CHECK(setsockopt(ends[0], SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit) == 0);
    CHECK(setsockopt(ends[0], SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit) == 0);
    CHECK(pthread_create(&thread, NULL, drip, &ends[1]) == 0);
    clock_gettime(CLOCK_MONOTONIC, &from);
    GIVES(tarn_share_receive(ends[0], &share), TARN_ERROR_NOT_READY);
    clock_gettime(CLOCK_MONOTONIC, &to);
    CHECK(pthread_join(thread, NULL) == 0);
    int64_t ms = (to.tv_sec - from.tv_sec) * 1000 + (to.tv_nsec - from.tv_nsec) / 1000000;
    CHECK(ms >= 200 && ms < 1500); /* the last byte comes after 2000 */

    char *block = alloc_on(own, 1);
    tarn_status status = TARN_OK;
    share = export_of(block);
    for (int i = 0; i < 10000 && !status; i++)
        status = tarn_share_send(ends[0], share);
    CHECK(status == TARN_ERROR_NOT_READY);
    OK(tarn_share_close(share));
    OK(tarn_free(block));
    close(ends[0]);
    close(ends[1]);
    nothing_is_left(0);
}

/* ---- Failures ---- */

/* Exports, sends, receives, imports and closes; what fails leaves nothing. */
static tarn_status go_round(void *block)
{
    int ends[2];
    tarn_share *share = NULL, *received = NULL;
    void *pointer = NULL;
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
    tarn_status status = tarn_export(block, &share);
    if (!status)
        status = tarn_share_send(ends[0], share);
    if (!status)
        status = tarn_share_receive(ends[1], &received);
    if (!status)
        status = tarn_import(received, 1, &pointer);
    if (!status && (status = tarn_import_close(pointer)))
        CHECK(reaches(1, pointer)); /* still imported */
    if (status && pointer && reaches(1, pointer))
        OK(tarn_import_close(pointer));
    OK(tarn_share_close(received));
    OK(tarn_share_close(share));
    close(ends[0]);
    close(ends[1]);
    return status;
}

static void each_failure_leaves_nothing(void **state)
{
    (void)state;
    char *block = alloc_on(own, 5 * PIECE + 2 * MIB);
    OK(go_round(block));
    int files = open_files();
    for (int host = 0; host < 2; host++) {
        uint64_t injected = 0;
        for (uint64_t nth = 1, hits = 1; hits; nth++) {
            if (host)
                pages_fail(nth, false);
            else
                OK(tarn_host_fail_set(-1, nth, false, TARN_ERROR_DRIVER));
            tarn_status status = go_round(block);
            hits = host ? pages_fail_hits() : host_fail_hits();
            pages_fail(0, false);
            OK(tarn_host_fail_set(-1, 0, false, TARN_OK));
            injected += hits;
            CHECK(hits || !status);
            CHECK(!status || status == (host ? TARN_ERROR_OUT_OF_HOST_MEMORY : TARN_ERROR_DRIVER));
            OK(tarn_device_trim(1, 0)); /* what the driver kept */
            CHECK(ledger_of(1).mapped == 0 && ledger_of(1).mappings == 0);
            CHECK(open_files() == files);
            verify(1);
            OK(go_round(block));
        }
        CHECK(injected >= (host ? 5 : 8));
    }
    static const enum driver_call maps[] = {DRIVER_CALL_import, DRIVER_CALL_map,
                                            DRIVER_CALL_set_access};
    for (int i = 0; i < 3; i++) { /* what was imported by then is gone at once */
        OK(tarn_host_fail_set((int)maps[i], 1, false, TARN_ERROR_DRIVER));
        GIVES(go_round(block), TARN_ERROR_DRIVER);
        CHECK(open_files() == files && ledger_of(1).mapped == 0);
    }
    /* And from then on for ever, unmaps and releases too */
    for (uint64_t nth = 1, hits = 1; hits; nth++) {
        OK(tarn_host_fail_set(-1, nth, true, TARN_ERROR_DRIVER));
        tarn_share *share = NULL;
        void *pointer = NULL;
        tarn_status status = tarn_export(block, &share);
        if (!status)
            status = tarn_import(share, 1, &pointer);
        hits = host_fail_hits();
        OK(tarn_host_fail_set(-1, 0, false, TARN_OK));
        CHECK((status == TARN_OK) == (pointer != NULL) && (hits || !status));
        if (pointer)
            OK(tarn_import_close(pointer));
        OK(tarn_share_close(share));
        verify(1);
        OK(tarn_device_trim(1, 0));
        CHECK(ledger_of(1).mapped == 0 && open_files() == files);
    }
    OK(tarn_free(block));
    nothing_is_left(0);
    nothing_is_left(1);
}

/* Threads that import and close the same. */
static tarn_share *contended;

static void *import_run(void *argument)
{
    (void)argument;
    for (int i = 0; i < 300; i++) {
        void *pointer = NULL;
        if (tarn_import(contended, 1, &pointer) || *(volatile char *)pointer != 3 ||
            tarn_import_close(pointer))
            return NULL;
    }
    return &contended;
}

static void threads_import_the_same(void **state)
{
    (void)state;
    pthread_t threads[3];
    char *block = alloc_on(own, PIECE);
    *block = 3;
    contended = export_of(block);
    for (int i = 0; i < 3; i++)
        CHECK(pthread_create(&threads[i], NULL, import_run, NULL) == 0);
    for (int i = 0; i < 3; i++) {
        void *result = NULL;
        CHECK(pthread_join(threads[i], &result) == 0 && result);
    }
    OK(tarn_share_close(contended));
    OK(tarn_free(block));
    nothing_is_left(0);
    nothing_is_left(1);
}

static int start(void **state)
{
    (void)state;
    host_start_with(3, DEVICE / 2); /* so that pieces are large */
    OK(tarn_export_enable(0));
    own = lease(0);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(wrong_arguments_are_refused),
        cmocka_unit_test(a_time_limit_is_for_the_whole_share),
        cmocka_unit_test(what_is_no_share_is_refused),
        cmocka_unit_test(each_failure_leaves_nothing),
        cmocka_unit_test(threads_import_the_same),
    };
    return cmocka_run_group_tests(tests, start, NULL);
}
