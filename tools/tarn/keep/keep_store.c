/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* The protocol is systemd's, whose manual calls it stable and gives it for programs that do not
 * link libsystemd: datagrams of text with files to $NOTIFY_SOCKET, and passed descriptors from
 * number 3 on with $LISTEN_PID, $LISTEN_FDS and $LISTEN_FDNAMES. libsystemd itself exists only as a
 * shared library, which the program of the wheels could not load everywhere.
 *
 * Owns the connection to the manager, and the descriptors that nobody has claimed. One thread. */
#include "keep/keep_store.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

enum { FIRST_PASSED = 3, NAME_BYTES = 96, SETTLE_MS = 5000 };

/* A descriptor that the manager passed on. */
struct passed {
    char name[NAME_BYTES];
    int file; /* -1 after it was claimed */
};

static int manager = -1; /* the connection to the service manager, or -1 */
static bool unsettled;   /* messages were sent that the manager has not acknowledged */
static struct passed *passed;
static unsigned passed_count;

bool store_is_there(void)
{
    return manager >= 0;
}

/* Messages ------------------------------------------------------------------------------------- */

static void complain(const char *why)
{
    static bool said;
    if (!said)
        fprintf(stderr,
                "tarn keep: the service manager keeps no descriptors: %s; a kill of the "
                "owner loses pools whose process has ended\n",
                why);
    said = true;
}

/* Sends a message with at most one file. */
static void tell(const char *text, int file)
{
    union {
        struct cmsghdr header;
        char room[CMSG_SPACE(sizeof(int))];
    } rights;
    struct iovec whole = {(void *)(uintptr_t)text, strlen(text)};
    struct msghdr header = {.msg_iov = &whole, .msg_iovlen = 1};
    if (manager < 0)
        return;
    unsettled = true;
    if (file >= 0) {
        memset(&rights, 0, sizeof rights);
        header.msg_control = &rights;
        header.msg_controllen = sizeof rights.room;
        struct cmsghdr *control = CMSG_FIRSTHDR(&header);
        control->cmsg_level = SOL_SOCKET;
        control->cmsg_type = SCM_RIGHTS;
        control->cmsg_len = CMSG_LEN(sizeof file);
        memcpy(CMSG_DATA(control), &file, sizeof file);
    }
    ssize_t sent;
    while ((sent = sendmsg(manager, &header, MSG_NOSIGNAL)) < 0 && errno == EINTR)
        ;
    if (sent < 0)
        complain(strerror(errno));
}

/* Without FDPOLL=0 the manager would give up a pipe whose other end is closed, which says that a
 * pool's process has ended. */
static void put_named(const char *kind, uint32_t slot, const char *what, int file)
{
    char text[NAME_BYTES + 64];
    snprintf(text, sizeof text, "FDSTORE=1\nFDPOLL=0\nFDNAME=%s%" PRIu32 ".%s", kind, slot, what);
    tell(text, file);
}

static void remove_named(const char *name)
{
    char text[NAME_BYTES + 64];
    snprintf(text, sizeof text, "FDSTOREREMOVE=1\nFDNAME=%s", name);
    tell(text, -1);
}

static void remove_of(const char *kind, uint32_t slot, const char *what)
{
    char name[NAME_BYTES + 16];
    snprintf(name, sizeof name, "%s%" PRIu32 ".%s", kind, slot, what);
    remove_named(name);
}

void store_put(uint32_t slot, const char *what, int file)
{
    put_named("pool", slot, what, file);
}

void store_remove(uint32_t slot, const char *what)
{
    remove_of("pool", slot, what);
}

void store_put_group(uint32_t slot, const char *name, int file)
{
    put_named("group", slot, name, file);
}

void store_remove_group(uint32_t slot, const char *name)
{
    remove_of("group", slot, name);
}

static void name_segment(char what[NAME_BYTES], const struct keep_segment *segment)
{
    snprintf(what, NAME_BYTES, "%" PRIx64 "+%" PRIx64 ".%" PRIx64, segment->offset, segment->size,
             segment->number);
}

void store_put_segment(uint32_t slot, const struct keep_segment *segment, int file)
{
    char what[NAME_BYTES];
    name_segment(what, segment);
    store_put(slot, what, file);
}

void store_remove_segment(uint32_t slot, const struct keep_segment *segment)
{
    char what[NAME_BYTES];
    name_segment(what, segment);
    store_remove(slot, what);
}

/* The manager closes a pipe's end when it has done what it was told before. */
void store_settle(void)
{
    int ends[2];
    if (!unsettled || pipe2(ends, O_CLOEXEC) != 0)
        return;
    tell("BARRIER=1", ends[1]);
    unsettled = false;
    close(ends[1]);
    struct pollfd done = {.fd = ends[0]};
    int came;
    while ((came = poll(&done, 1, SETTLE_MS)) < 0 && errno == EINTR)
        ;
    if (came == 0)
        complain("it did not answer for 5 s");
    close(ends[0]);
}

void store_ready(void)
{
    tell("READY=1", -1);
}

/* What was passed on --------------------------------------------------------------------------- */

static void connect_manager(const char *path)
{
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    size_t length = strlen(path);
    if (length < 2 || length >= sizeof name.sun_path || !strchr("/@", *path)) {
        complain("NOTIFY_SOCKET names no unix socket");
        return;
    }
    memcpy(name.sun_path, path, length);
    if (*path == '@') /* an abstract one */
        name.sun_path[0] = '\0';
    socklen_t size = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + length);
    struct timeval limit = {.tv_sec = SETTLE_MS / 1000};
    manager = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (manager < 0 || setsockopt(manager, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit) != 0 ||
        connect(manager, (struct sockaddr *)&name, size) != 0) {
        complain(strerror(errno));
        if (manager >= 0)
            close(manager);
        manager = -1;
    }
}

static long number_of(const char *variable)
{
    const char *text = getenv(variable);
    return text ? strtol(text, NULL, 10) : 0;
}

/* Enters each passed descriptor under its name; one without a name has an empty one. */
static void enter_passed(void)
{
    long count = number_of("LISTEN_PID") == getpid() ? number_of("LISTEN_FDS") : 0;
    const char *names = getenv("LISTEN_FDNAMES");
    if (count <= 0)
        return;
    passed = calloc((size_t)count, sizeof *passed);
    if (!passed)
        return;
    names = names ? names : "";
    for (long i = 0; i < count; i++) {
        size_t length = strcspn(names, ":");
        struct passed *entry = &passed[passed_count++];
        entry->file = FIRST_PASSED + (int)i;
        (void)fcntl(entry->file, F_SETFD, FD_CLOEXEC);
        if (length < NAME_BYTES)
            memcpy(entry->name, names, length);
        names += length + (names[length] == ':');
    }
}

void store_begin(void)
{
    const char *path = getenv("NOTIFY_SOCKET");
    if (path && *path)
        connect_manager(path);
    enter_passed();
}

/* The part of a descriptor's name behind the slot; NULL: the descriptor belongs to another slot. */
static const char *of_slot(const struct passed *entry, uint32_t slot)
{
    char start[NAME_BYTES];
    int length = snprintf(start, sizeof start, "pool%" PRIu32 ".", slot);
    bool is_of_slot = entry->file >= 0 && strncmp(entry->name, start, (size_t)length) == 0;
    return is_of_slot ? entry->name + length : NULL;
}

static int claim(struct passed *entry)
{
    int file = entry->file;
    entry->file = -1;
    return file;
}

int store_claim(uint32_t slot, const char *what)
{
    for (unsigned i = 0; i < passed_count; i++) {
        const char *is = of_slot(&passed[i], slot);
        if (is && strcmp(is, what) == 0)
            return claim(&passed[i]);
    }
    return -1;
}

/* Reads what name_segment() wrote. */
static bool read_segment(const char *what, struct keep_segment *segment)
{
    uint64_t *parts[] = {&segment->offset, &segment->size, &segment->number};
    static const char ends[] = {'+', '.', 0};
    char *end;
    for (int i = 0; i < 3; i++, what = end + 1) {
        *parts[i] = strtoull(what, &end, 16);
        if (end == what || *end != ends[i])
            return false;
    }
    return true;
}

int store_claim_segment(uint32_t slot, struct keep_segment *segment)
{
    for (unsigned i = 0; i < passed_count; i++) {
        const char *is = of_slot(&passed[i], slot);
        if (is && read_segment(is, segment))
            return claim(&passed[i]);
    }
    return -1;
}

/* Returns the name of the group, if the descriptor is the file of one. NULL: it is not. */
static const char *of_group(const struct passed *entry, uint32_t *slot)
{
    static const char start[] = "group";
    const char *number = entry->name + sizeof start - 1;
    char *end;
    if (entry->file < 0 || strncmp(entry->name, start, sizeof start - 1) != 0)
        return NULL;
    unsigned long value = strtoul(number, &end, 10);
    if (end == number || *end != '.' || value >= GROUP_SLOTS)
        return NULL;
    *slot = (uint32_t)value;
    return end + 1;
}

int store_claim_group(uint32_t *slot, char name[GROUP_NAME])
{
    for (unsigned i = 0; i < passed_count; i++) {
        const char *is = of_group(&passed[i], slot);
        if (is) {
            snprintf(name, GROUP_NAME, "%s", is);
            return claim(&passed[i]);
        }
    }
    return -1;
}

static bool has_option(int file, int option, int value)
{
    int is = 0;
    socklen_t size = sizeof is;
    return getsockopt(file, SOL_SOCKET, option, &is, &size) == 0 && is == value;
}

int store_claim_listener(void)
{
    for (unsigned i = 0; i < passed_count; i++) {
        int file = passed[i].file;
        if (file >= 0 && has_option(file, SO_ACCEPTCONN, 1) &&
            has_option(file, SO_TYPE, SOCK_SEQPACKET) &&
            fcntl(file, F_SETFL, O_RDWR | O_NONBLOCK) == 0)
            return claim(&passed[i]);
    }
    return -1;
}

void store_drop_unclaimed(void)
{
    for (unsigned i = 0; i < passed_count; i++)
        if (passed[i].file >= 0) {
            remove_named(passed[i].name);
            close(claim(&passed[i]));
        }
    free(passed);
    passed = NULL;
    passed_count = 0;
}
