/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* A service manager's store of descriptors: fd_store.h. */
#include "support/fd_store.h"
#include "support/host.h"

#include <fcntl.h>
#include <linux/kcmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

enum { PASSED_FROM = 3 };

static int bound(int type, const char *path)
{
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    snprintf(name.sun_path, sizeof name.sun_path, "%s", path);
    int file = socket(AF_UNIX, type | SOCK_CLOEXEC, 0);
    CHECK(file >= 0 && bind(file, (struct sockaddr *)&name, sizeof name) == 0);
    return file;
}

void fd_store_begin(struct fd_store *store, const char *path, const char *socket)
{
    snprintf(store->path, sizeof store->path, "%s", path);
    store->notifications = bound(SOCK_DGRAM, path);
    store->listener = bound(SOCK_SEQPACKET, socket);
    CHECK(listen(store->listener, 64) == 0);
}

void fd_store_end(struct fd_store *store, const char *socket)
{
    close(store->notifications);
    close(store->listener);
    CHECK(unlink(store->path) == 0 && unlink(socket) == 0);
}

/* Whether two descriptors are of one open file. False where the system does not tell. */
static bool is_same(int one, int other)
{
    pid_t self = getpid();
    return syscall(SYS_kcmp, self, self, KCMP_FILE, one, other) == 0;
}

void fd_store_hold(struct fd_store *store, const char *name, int file)
{
    bool fits = store->count < store->room;
    for (unsigned i = 0; fits && i < store->count; i++)
        fits = !is_same(store->held[i].file, file);
    if (!fits) {
        close(file);
        return;
    }
    struct fd_held *held = &store->held[store->count++];
    snprintf(held->name, sizeof held->name, "%s", name);
    held->file = file;
}

void fd_store_let_go(struct fd_store *store, const char *name)
{
    for (unsigned i = store->count; i-- > 0;)
        if (strcmp(store->held[i].name, name) == 0) {
            close(store->held[i].file);
            store->held[i] = store->held[--store->count];
        }
}

/* The value of a field of a message. */
static const char *field(const char *text, const char *name, char value[96])
{
    const char *found = strstr(text, name);
    if (!found)
        return NULL;
    snprintf(value, 96, "%.*s", (int)strcspn(found + strlen(name), "\n"), found + strlen(name));
    return value;
}

static void obey(struct fd_store *store, const char *text, int file)
{
    char name[96], value[96];
    if (strstr(text, "READY=1"))
        store->ready++;
    if (strstr(text, "FDSTOREREMOVE=1"))
        fd_store_let_go(store, field(text, "FDNAME=", name));
    else if (strstr(text, "FDSTORE=1") && file >= 0) {
        CHECK(field(text, "FDPOLL=", value) && strcmp(value, "0") == 0);
        fd_store_hold(store, field(text, "FDNAME=", name), file);
        return;
    }
    if (file >= 0) /* among them that of BARRIER=1 */
        close(file);
}

void fd_store_obey(struct fd_store *store)
{
    union {
        struct cmsghdr header;
        char room[CMSG_SPACE(sizeof(int))];
    } rights;
    char text[1000];
    for (;;) {
        struct iovec whole = {text, sizeof text - 1};
        struct msghdr header = {.msg_iov = &whole,
                                .msg_iovlen = 1,
                                .msg_control = &rights,
                                .msg_controllen = sizeof rights};
        ssize_t came = recvmsg(store->notifications, &header, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
        if (came < 0)
            return;
        int file = -1;
        struct cmsghdr *control = CMSG_FIRSTHDR(&header);
        if (control && control->cmsg_type == SCM_RIGHTS)
            memcpy(&file, CMSG_DATA(control), sizeof file);
        text[came] = '\0';
        obey(store, text, file);
    }
}

void fd_store_name(const struct fd_store *store)
{
    static char names[FD_STORE_MOST * 96];
    char number[16];
    size_t length = (size_t)snprintf(names, sizeof names, "tarn-keep.socket");
    for (unsigned i = 0; i < store->count; i++)
        length +=
            (size_t)snprintf(names + length, sizeof names - length, ":%s", store->held[i].name);
    snprintf(number, sizeof number, "%u", store->count + 1);
    CHECK(setenv("LISTEN_FDS", number, 1) == 0 && setenv("LISTEN_FDNAMES", names, 1) == 0 &&
          setenv("NOTIFY_SOCKET", store->path, 1) == 0);
}

void fd_store_unname(void)
{
    CHECK(unsetenv("LISTEN_FDS") == 0 && unsetenv("LISTEN_FDNAMES") == 0 &&
          unsetenv("NOTIFY_SOCKET") == 0);
}

void fd_store_pass_on(const struct fd_store *store)
{
    int high[FD_STORE_MOST + 1], behind = PASSED_FROM + (int)store->count + 1;
    unsigned count = 0;
    high[count++] = fcntl(store->listener, F_DUPFD_CLOEXEC, behind);
    for (unsigned i = 0; i < store->count; i++)
        high[count++] = fcntl(store->held[i].file, F_DUPFD_CLOEXEC, behind);
    for (unsigned i = 0; i < count; i++)
        if (high[i] < 0 || dup2(high[i], PASSED_FROM + (int)i) < 0)
            _exit(126);
}
