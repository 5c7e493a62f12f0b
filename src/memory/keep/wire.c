/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

#include "memory/keep/wire.h"
#include "base/file.h"
#include "record/ticks.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

/* "t1trkeep" as a machine of the same byte order has it. */
#define MAGIC UINT64_C(0x7065656b72743174)

_Static_assert(sizeof(struct keep_message) ==
                   16 + 64 + 64 + 8 + 8 + 8 + 8 + 8 + 16 + KEEP_BATCH * 24 + KEEP_TEXT_BYTES,
               "what is sent has no gaps");

unsigned wire_patience_ms = 10000;

union rights {
    struct cmsghdr header;
    char room[CMSG_SPACE(KEEP_BATCH * sizeof(int))];
};

struct keep_message keep_message(enum keep_verb verb)
{
    struct keep_message message;
    memset(&message, 0, sizeof message);
    message.magic = MAGIC;
    message.version = KEEP_VERSION;
    message.verb = verb;
    return message;
}

/* Whether a call that failed is to be made again: a signal has interrupted it. The socket's time
 * limit begins anew each time, so signals lengthen it once, to twice as long. `until` is 0 at
 * first. */
static bool is_again(uint64_t *until)
{
    uint64_t now = ticks_of_system();
    if (errno != EINTR)
        return false;
    if (!*until)
        *until = now + wire_patience_ms * UINT64_C(1000000);
    if (now < *until)
        return true;
    errno = EAGAIN;
    return false;
}

bool wire_send(int socket, const struct keep_message *message, const int *files, unsigned count)
{
    union rights rights;
    struct iovec whole = {(void *)(uintptr_t)message, sizeof *message};
    struct msghdr header = {.msg_iov = &whole, .msg_iovlen = 1};
    if (count > 0) {
        memset(&rights, 0, sizeof rights);
        header.msg_control = &rights;
        header.msg_controllen = (socklen_t)CMSG_SPACE(count * sizeof(int));
        struct cmsghdr *control = CMSG_FIRSTHDR(&header);
        control->cmsg_level = SOL_SOCKET;
        control->cmsg_type = SCM_RIGHTS;
        control->cmsg_len = (socklen_t)CMSG_LEN(count * sizeof(int));
        memcpy(CMSG_DATA(control), files, count * sizeof(int));
    }
    uint64_t until = 0;
    ssize_t sent;
    while ((sent = sendmsg(socket, &header, MSG_NOSIGNAL)) < 0 && is_again(&until))
        ;
    return sent == (ssize_t)sizeof *message;
}

/* Takes the files of a message over. 0, or why some were lost: EPROTO if there were too many,
 * EMFILE if the process has no descriptors left. */
static int take_files(struct msghdr *header, int files[KEEP_BATCH], unsigned *count)
{
    int why = 0;
    for (struct cmsghdr *control = CMSG_FIRSTHDR(header); control;
         control = CMSG_NXTHDR(header, control)) {
        if (control->cmsg_level != SOL_SOCKET || control->cmsg_type != SCM_RIGHTS)
            continue;
        size_t came = (control->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        for (size_t i = 0; i < came; i++) {
            int file;
            memcpy(&file, CMSG_DATA(control) + i * sizeof file, sizeof file);
            file = file_renumber(file);
            if (file < 0) {
                why = EMFILE;
            } else if (*count < KEEP_BATCH) {
                files[(*count)++] = file;
            } else {
                close(file);
                why = EPROTO;
            }
        }
    }
    if (header->msg_flags & MSG_CTRUNC) /* as many came as had room, or as the process may have */
        why = *count < KEEP_BATCH ? EMFILE : EPROTO;
    return why;
}

bool wire_is_message(const struct keep_message *message)
{
    return message->magic == MAGIC && message->version == KEEP_VERSION &&
           memchr(message->name, 0, sizeof message->name) &&
           memchr(message->driver, 0, sizeof message->driver) &&
           memchr(message->device, 0, sizeof message->device) &&
           memchr(message->text, 0, sizeof message->text);
}

int wire_receive(int socket, struct keep_message *message, int files[KEEP_BATCH], unsigned *count)
{
    union rights rights;
    struct iovec whole = {message, sizeof *message};
    struct msghdr header = {.msg_iov = &whole,
                            .msg_iovlen = 1,
                            .msg_control = &rights,
                            .msg_controllen = sizeof rights};
    uint64_t until = 0;
    ssize_t came;
    *count = 0;
    while ((came = recvmsg(socket, &header, MSG_CMSG_CLOEXEC)) < 0 && is_again(&until))
        ;
    if (came < 0)
        return -1;
    if (came == 0 && !header.msg_controllen) /* an empty message may have files */
        return 0;
    int why = take_files(&header, files, count);
    if (came != (ssize_t)sizeof *message || header.msg_flags & MSG_TRUNC ||
        !wire_is_message(message))
        why = EPROTO;
    if (!why)
        return 1;
    while (*count > 0)
        close(files[--*count]);
    errno = why;
    return -1;
}

/* Whether the owner at a socket is of this user, or of root. Root trusts it in any case. */
static bool is_trusted(int file)
{
    struct ucred owner;
    socklen_t size = sizeof owner;
    if (getsockopt(file, SOL_SOCKET, SO_PEERCRED, &owner, &size) != 0)
        return false;
    bool trusted = owner.uid == geteuid() || owner.uid == 0 || geteuid() == 0;
    if (!trusted)
        errno = EPERM;
    return trusted;
}

static bool is_connected(int file, const struct sockaddr_un *name)
{
    uint64_t until = 0;
    int code;
    while ((code = connect(file, (const struct sockaddr *)name, sizeof *name)) && is_again(&until))
        ;
    return code == 0;
}

int wire_connect(const char *path)
{
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    if (strlen(path) >= sizeof name.sun_path) {
        errno = ENAMETOOLONG;
        return -1;
    }
    memcpy(name.sun_path, path, strlen(path));
    struct timeval limit = {.tv_sec = wire_patience_ms / 1000,
                            .tv_usec = (suseconds_t)(wire_patience_ms % 1000) * 1000};
    int file = file_renumber(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
    if (file < 0)
        return file;
    if (setsockopt(file, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit) == 0 &&
        setsockopt(file, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit) == 0 &&
        is_connected(file, &name) && is_trusted(file))
        return file;
    int code = errno;
    close(file);
    errno = code;
    return -1;
}
