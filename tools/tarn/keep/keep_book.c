/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* The owner's book: pools, their segments, and who has them. Owns the list of pools. It opens no
 * driver: to it, memory is a file descriptor. One thread.
 *
 * A pool is given to a process only when the process that had it has ended, which its pidfd tells,
 * and when nobody holds the connection any more: a child of fork() holds a copy of it, and of the
 * device too. */
#include "keep/keep.h"

#include <dirent.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { POOLS_MOST = 256 };

static struct kept_pool *pools;

const struct kept_pool *keep_pools(void)
{
    return pools;
}

static struct kept_pool *find(const char *name)
{
    struct kept_pool *pool = pools;
    while (pool && strcmp(pool->name, name) != 0)
        pool = pool->next;
    return pool;
}

uint64_t kept_bytes(const struct kept_pool *pool)
{
    uint64_t bytes = 0;
    for (unsigned i = 0; i < pool->count; i++)
        bytes += pool->segments[i].size;
    return bytes;
}

static void drop(struct kept_pool *pool)
{
    struct kept_pool **place = &pools;
    while (*place != pool)
        place = &(*place)->next;
    *place = pool->next;
    for (unsigned i = 0; i < pool->count; i++)
        close(pool->segments[i].file);
    layout_unmap(pool->layout);
    close(pool->file);
    if (pool->ended >= 0)
        close(pool->ended);
    if (pool->peer)
        pool->peer->pool = NULL;
    free(pool);
}

/* Answers -------------------------------------------------------------------------------------- */

static bool answer(const struct keep_peer *peer, enum keep_verb verb, const char *text)
{
    struct keep_message message = keep_message(verb);
    snprintf(message.text, sizeof message.text, "%s", text ? text : "");
    return wire_send(peer->socket, &message, NULL, 0);
}

static struct keep_message description(const struct kept_pool *pool)
{
    struct keep_message message = keep_message(KEEP_GIVES);
    memcpy(message.name, pool->name, sizeof message.name);
    memcpy(message.driver, pool->driver, sizeof message.driver);
    memcpy(message.device, pool->device, sizeof message.device);
    message.bytes = kept_bytes(pool);
    message.count = pool->count;
    message.slot = pool->slot;
    message.process = pool->process;
    return message;
}

/* Gives a pool: what it is, with its layout, and then its segments. */
static bool give(const struct keep_peer *peer, const struct kept_pool *pool)
{
    struct keep_message message = description(pool);
    bool sent = wire_send(peer->socket, &message, &pool->file, 1);
    for (unsigned i = 0; sent && i < pool->count; i += KEEP_BATCH) {
        int files[KEEP_BATCH];
        message = keep_message(KEEP_SEGMENTS);
        for (; message.count < KEEP_BATCH && i + message.count < pool->count; message.count++) {
            const struct kept_segment *segment = &pool->segments[i + message.count];
            message.segments[message.count] = (struct keep_segment){segment->offset, segment->size};
            files[message.count] = segment->file;
        }
        sent = wire_send(peer->socket, &message, files, message.count);
    }
    return sent;
}

/* Who has a pool ------------------------------------------------------------------------------- */

static bool has_ended(int pidfd)
{
    struct pollfd file = {.fd = pidfd, .events = POLLIN};
    return pidfd < 0 || poll(&file, 1, 0) > 0;
}

/* A process, other than `but`, that has a socket open; 0: none that this user may look at. */
static pid_t holder_of(uint64_t inode, pid_t but)
{
    char wanted[48], path[300], name[64];
    pid_t found = 0;
    snprintf(wanted, sizeof wanted, "socket:[%llu]", (unsigned long long)inode);
    DIR *all = opendir("/proc");
    for (struct dirent *entry; all && !found && (entry = readdir(all));) {
        pid_t process = (pid_t)strtol(entry->d_name, NULL, 10);
        snprintf(path, sizeof path, "/proc/%.20s/fd", entry->d_name);
        DIR *files = process > 0 && process != but ? opendir(path) : NULL;
        for (struct dirent *file; files && !found && (file = readdir(files));) {
            snprintf(path, sizeof path, "/proc/%d/fd/%.20s", (int)process, file->d_name);
            ssize_t length = readlink(path, name, sizeof name - 1);
            name[length > 0 ? length : 0] = '\0';
            found = strcmp(name, wanted) == 0 ? process : 0;
        }
        if (files)
            closedir(files);
    }
    if (all)
        closedir(all);
    return found;
}

/* Whether no process can use the pool's memory; otherwise says who may. */
static bool is_free(const struct kept_pool *pool, char text[KEEP_TEXT_BYTES])
{
    if (!has_ended(pool->ended)) {
        snprintf(text, KEEP_TEXT_BYTES, "process %d has it", (int)pool->process);
        return false;
    }
    if (!pool->peer)
        return true;
    pid_t holder = holder_of(pool->socket, pool->process);
    snprintf(text, KEEP_TEXT_BYTES,
             holder ? "process %d had it and has ended, but process %d, a child of it, holds the "
                      "device open still: end that first"
                    : "process %d had it and ends now",
             (int)pool->process, (int)holder);
    return false;
}

/* Makes a process the one that has a pool. */
static bool take(struct keep_peer *peer, struct kept_pool *pool, uint64_t socket)
{
    int pidfd = (int)syscall(SYS_pidfd_open, peer->process, 0);
    if (pidfd < 0)
        return false;
    if (pool->ended >= 0)
        close(pool->ended);
    pool->ended = pidfd;
    pool->process = peer->process;
    pool->peer = peer;
    pool->socket = socket;
    peer->pool = pool;
    return true;
}

static bool refuse_unwatched(const struct keep_peer *peer)
{
    return answer(
        peer, KEEP_REFUSED,
        "the owner cannot see when the process ends: it needs Linux 5.3, and to be in the "
        "same PID namespace or one around it");
}

/* Requests ------------------------------------------------------------------------------------- */

static bool adopt(struct keep_peer *peer, const struct keep_message *request)
{
    struct kept_pool *pool = find(request->name);
    char text[KEEP_TEXT_BYTES];
    if (!pool)
        return answer(peer, KEEP_UNKNOWN, NULL);
    if (peer->pool)
        return answer(peer, KEEP_REFUSED, "the connection has a pool already");
    if (strcmp(pool->driver, request->driver) != 0 || strcmp(pool->device, request->device) != 0) {
        snprintf(text, sizeof text, "it is memory of %.11s %.51s, not of %.11s %.51s", pool->driver,
                 pool->device, request->driver, request->device);
        return answer(peer, KEEP_REFUSED, text);
    }
    if (!is_free(pool, text))
        return answer(peer, KEEP_TAKEN, text);
    return take(peer, pool, request->socket) ? give(peer, pool) : refuse_unwatched(peer);
}

static uint32_t free_slot(void)
{
    uint32_t slot = 0;
    for (const struct kept_pool *pool = pools; pool;)
        if (pool->slot == slot) {
            slot++;
            pool = pools;
        } else {
            pool = pool->next;
        }
    return slot;
}

static bool create(struct keep_peer *peer, const struct keep_message *request)
{
    unsigned count = 0;
    for (const struct kept_pool *pool = pools; pool; pool = pool->next)
        count++;
    if (peer->pool || find(request->name) || !request->name[0])
        return answer(peer, KEEP_REFUSED, "there is such a pool by now, or the name is empty");
    if (count >= POOLS_MOST)
        return answer(peer, KEEP_REFUSED, "the owner keeps 256 pools, its most");
    struct kept_pool *pool = calloc(1, sizeof *pool);
    int file = pool ? layout_create() : -1;
    struct layout *layout = file >= 0 ? layout_map(file) : NULL;
    if (!layout) {
        free(pool);
        if (file >= 0)
            close(file);
        return answer(peer, KEEP_REFUSED, "the owner has no memory, or no file, for its layout");
    }
    memcpy(pool->name, request->name, sizeof pool->name);
    memcpy(pool->driver, request->driver, sizeof pool->driver);
    memcpy(pool->device, request->device, sizeof pool->device);
    pool->slot = free_slot();
    pool->file = file;
    pool->layout = layout;
    pool->ended = -1;
    pool->next = pools;
    pools = pool;
    if (take(peer, pool, request->socket))
        return give(peer, pool);
    drop(pool);
    return refuse_unwatched(peer);
}

static bool add(struct keep_peer *peer, const struct keep_message *request, const int *files,
                unsigned count)
{
    struct kept_pool *pool = peer->pool;
    if (!pool || request->count != 1 || count != 1 || !request->segments[0].size)
        return answer(peer, KEEP_REFUSED, "that is no segment of a pool of this connection");
    if (pool->count == KEEP_SEGMENTS_MOST)
        return answer(peer, KEEP_REFUSED, "the pool has 1024 segments, the most that are kept");
    int file = dup(files[0]);
    if (file < 0)
        return answer(peer, KEEP_REFUSED, "the owner has no file descriptors left (ulimit -n)");
    pool->segments[pool->count++] =
        (struct kept_segment){request->segments[0].offset, request->segments[0].size, file};
    return answer(peer, KEEP_OK, NULL);
}

static bool take_back(struct keep_peer *peer, const struct keep_message *request)
{
    struct kept_pool *pool = peer->pool;
    for (unsigned i = 0; pool && i < pool->count; i++)
        if (pool->segments[i].offset == request->segments[0].offset) {
            close(pool->segments[i].file);
            pool->segments[i] = pool->segments[--pool->count];
            return answer(peer, KEEP_OK, NULL);
        }
    return answer(peer, KEEP_REFUSED, "the pool has no such segment");
}

/* The process has nothing of the pool mapped, and others may have it. */
static bool return_pool(struct keep_peer *peer)
{
    struct kept_pool *pool = peer->pool;
    if (pool && pool->count == 0)
        drop(pool);
    else if (pool) {
        close(pool->ended);
        pool->ended = -1;
        pool->peer = NULL;
        peer->pool = NULL;
    }
    return answer(peer, KEEP_OK, NULL);
}

static bool list(const struct keep_peer *peer)
{
    bool sent = true;
    for (const struct kept_pool *pool = pools; sent && pool; pool = pool->next) {
        struct keep_message message = description(pool);
        message.blocks = layout_count(pool->layout);
        message.process = pool->peer || !has_ended(pool->ended) ? pool->process : 0;
        sent = wire_send(peer->socket, &message, NULL, 0);
    }
    return sent && answer(peer, KEEP_OK, NULL);
}

static bool drop_by_name(const struct keep_peer *peer, const char *name)
{
    struct kept_pool *pool = find(name);
    char text[KEEP_TEXT_BYTES];
    if (!pool)
        return answer(peer, KEEP_REFUSED, "there is no pool of that name");
    if (!is_free(pool, text))
        return answer(peer, KEEP_REFUSED, text);
    drop(pool);
    return answer(peer, KEEP_OK, NULL);
}

bool keep_serve(struct keep_peer *peer, const struct keep_message *request, const int *files,
                unsigned count)
{
    switch (request->verb) {
    case KEEP_ADOPT:
        return adopt(peer, request);
    case KEEP_CREATE:
        return create(peer, request);
    case KEEP_ADD:
        return add(peer, request, files, count);
    case KEEP_REMOVE:
        return take_back(peer, request);
    case KEEP_END:
        if (peer->pool)
            drop(peer->pool);
        return answer(peer, KEEP_OK, NULL);
    case KEEP_RETURN:
        return return_pool(peer);
    case KEEP_LIST:
        return list(peer);
    case KEEP_DROP:
        return drop_by_name(peer, request->name);
    default:
        return answer(peer, KEEP_REFUSED, "the owner does not know this request");
    }
}

void keep_part(struct keep_peer *peer)
{
    if (peer->pool)
        peer->pool->peer = NULL;
    peer->pool = NULL;
}
