/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* The owner's book: pools, their segments, and who has them. Owns the list of pools. Opens no
 * driver: memory is a file descriptor here. One thread.
 *
 * A process gets a pool only when two things are true. The process that had the pool has ended, by
 * its pidfd. And nobody holds the other end of the pipe that this process created before it asked
 * for the pool: a child of fork() has a copy of it, and has the device open too. The end of a
 * connection proves neither. Messages on an old connection are refused once the pool has another
 * process.
 *
 * The service manager's store gets and gives up what the book does (keep_store.h), before a request
 * is answered. */
#include "base/file.h"
#include "keep/keep.h"
#include "keep/keep_store.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { POOLS_MOST = 256 };

static struct kept_pool *pools; /* by name; of one name, by slot */

static const char no_files[] = "the owner has no file descriptors left (ulimit -n)";

struct kept_pool *keep_pools(void)
{
    return pools;
}

static struct kept_pool *find(const char *name)
{
    struct kept_pool *pool = pools;
    while (pool && (pool->is_over || strcmp(pool->name, name) != 0))
        pool = pool->next;
    return pool;
}

/* The least slot from a number on that no pool has. */
static uint32_t free_slot(uint32_t slot)
{
    for (const struct kept_pool *pool = pools; pool;)
        if (pool->slot == slot) {
            slot++;
            pool = pools;
        } else {
            pool = pool->next;
        }
    return slot;
}

static bool is_behind(const struct kept_pool *pool, const char *name, uint32_t slot)
{
    int order = strcmp(pool->name, name);
    return order > 0 || (order == 0 && pool->slot > slot);
}

static void enter(struct kept_pool *pool)
{
    struct kept_pool **place = &pools;
    while (*place && !is_behind(*place, pool->name, pool->slot))
        place = &(*place)->next;
    pool->next = *place;
    *place = pool;
}

static void take_out(const struct kept_pool *pool)
{
    struct kept_pool **place = &pools;
    while (*place != pool)
        place = &(*place)->next;
    *place = pool->next;
}

uint64_t kept_bytes(const struct kept_pool *pool)
{
    uint64_t bytes = 0;
    for (unsigned i = 0; i < pool->count; i++)
        bytes += pool->segments[i].size;
    return bytes;
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

void keep_record(const struct kept_pool *pool)
{
    struct keep_message message = description(pool);
    snprintf(message.text, sizeof message.text, "%s", keep_group_path(pool));
    message.from = pool->claim;
    message.to = pool->claimed;
    message.blocks = pool->arrives;
    if (pool->record >= 0 &&
        pwrite(pool->record, &message, sizeof message, 0) != (ssize_t)sizeof message)
        fprintf(stderr,
                "tarn keep: pool %s: what the service manager holds of it is not right "
                "any more: %s\n",
                pool->name, strerror(errno));
}

static void give_up(const struct kept_pool *pool, const char *what, int file)
{
    if (file < 0)
        return;
    store_remove(pool->slot, what);
    close(file);
}

/* Nobody has the pool any more. */
static void leave(struct kept_pool *pool)
{
    keep_group_unclaim(pool);
    give_up(pool, "process", pool->ended);
    give_up(pool, "pipe", pool->held);
    if (pool->peer)
        pool->peer->pool = NULL;
    pool->ended = pool->held = -1;
    pool->peer = NULL;
}

/* A record never has more segments than the service manager, wherever the owner is killed. */
static void forget(struct kept_pool *pool, unsigned i)
{
    struct keep_segment segment = pool->segments[i];
    int file = pool->files[i];
    pool->segments[i] = pool->segments[--pool->count];
    pool->files[i] = pool->files[pool->count];
    keep_record(pool);
    store_remove_segment(pool->slot, &segment);
    close(file);
    keep_reader_segment_ends(pool, &segment);
}

/* The end of a pool that is over, if nothing of it lingers any more. */
static void bury(struct kept_pool *pool)
{
    if (!pool->is_over || pool->lingering_count)
        return;
    while (pool->readers)
        keep_reader_ends(pool->readers);
    take_out(pool);
    free(pool->lingering);
    free(pool);
}

/* Ends a pool. While something of it lingers it stays in the list, with a slot that no other pool
 * gets. */
static void drop(struct kept_pool *pool)
{
    while (pool->count > 0)
        forget(pool, pool->count - 1);
    leave(pool);
    layout_unmap(pool->layout);
    give_up(pool, "layout", pool->file);
    give_up(pool, "record", pool->record);
    take_out(pool);
    pool->is_over = true;
    pool->slot = free_slot(POOLS_MOST);
    enter(pool);
    bury(pool);
}

/* The same, and its readers learn that it is over. */
static void end(struct kept_pool *pool)
{
    layout_changed(pool->layout, true);
    drop(pool);
}

/* Answers -------------------------------------------------------------------------------------- */

static bool reply(const struct keep_peer *peer, const struct keep_message *message,
                  const int *files, unsigned count)
{
    store_settle();
    keep_groups_count();
    return wire_send(peer->socket, message, files, count);
}

static bool answer(const struct keep_peer *peer, enum keep_verb verb, const char *text)
{
    struct keep_message message = keep_message(verb);
    snprintf(message.text, sizeof message.text, "%s", text ? text : "");
    return reply(peer, &message, NULL, 0);
}

/* Sends a pool to a peer: its description with the file of its layout, then its segments in
 * batches. */
static bool give(const struct keep_peer *peer, const struct kept_pool *pool, int layout)
{
    struct keep_message message = description(pool);
    bool sent = reply(peer, &message, &layout, 1);
    for (unsigned i = 0; sent && i < pool->count; i += KEEP_BATCH) {
        int files[KEEP_BATCH];
        message = keep_message(KEEP_SEGMENTS);
        for (; message.count < KEEP_BATCH && i + message.count < pool->count; message.count++) {
            message.segments[message.count] = pool->segments[i + message.count];
            files[message.count] = pool->files[i + message.count];
        }
        sent = reply(peer, &message, files, message.count);
    }
    return sent;
}

/* Who has a pool ------------------------------------------------------------------------------- */

static bool has_ended(int pidfd)
{
    struct pollfd file = {.fd = pidfd, .events = POLLIN};
    return pidfd < 0 || poll(&file, 1, 0) > 0;
}

/* Whether nobody has the other end of a pipe open. */
static bool is_let_go(int pipe)
{
    struct pollfd file = {.fd = pipe};
    return pipe < 0 || poll(&file, 1, 0) > 0;
}

/* Whether an open file of a process is the end of a pipe that can be written to: the end that a
 * pool's process has. The other end may be a service manager's. The permissions of a link in
 * /proc/PID/fd are those of the open file (proc(5)). */
static bool is_write_end(const char *path, const char *pipe)
{
    char name[64];
    struct stat about;
    ssize_t length = readlink(path, name, sizeof name - 1);
    name[length > 0 ? length : 0] = '\0';
    return strcmp(name, pipe) == 0 && lstat(path, &about) == 0 && about.st_mode & S_IWUSR;
}

/* Returns a process that has the pool's pipe open, other than this process and `but`. 0: none that
 * this user can see. */
static pid_t holder_of(int pipe, pid_t but)
{
    char wanted[48], path[300];
    struct stat about;
    pid_t found = 0;
    if (fstat(pipe, &about) != 0)
        return 0;
    snprintf(wanted, sizeof wanted, "pipe:[%llu]", (unsigned long long)about.st_ino);
    DIR *all = opendir("/proc");
    for (struct dirent *entry; all && !found && (entry = readdir(all));) {
        pid_t process = (pid_t)strtol(entry->d_name, NULL, 10);
        snprintf(path, sizeof path, "/proc/%.20s/fd", entry->d_name);
        bool other = process > 0 && process != but && process != getpid();
        DIR *files = other ? opendir(path) : NULL;
        for (struct dirent *file; files && !found && (file = readdir(files));) {
            snprintf(path, sizeof path, "/proc/%d/fd/%.20s", (int)process, file->d_name);
            found = is_write_end(path, wanted) ? process : 0;
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
    if (is_let_go(pool->held))
        return true;
    pid_t holder = holder_of(pool->held, pool->process);
    snprintf(text, KEEP_TEXT_BYTES,
             holder ? "process %d had it and has ended, but process %d, a child of it, holds the "
                      "device open still: end that first"
                    : "process %d had it and ends now",
             (int)pool->process, (int)holder);
    return false;
}

/* Whether a file is the end of a pipe that can only be read from: this one is not held open by the
 * owner itself. */
static bool is_read_end(int file)
{
    struct stat about;
    int mode = fcntl(file, F_GETFL);
    return mode >= 0 && (mode & O_ACCMODE) == O_RDONLY && fstat(file, &about) == 0 &&
           S_ISFIFO(about.st_mode);
}

static bool refuse_pipe(const struct keep_peer *peer, int code)
{
    char text[KEEP_TEXT_BYTES];
    snprintf(text, sizeof text, "the owner cannot open the pipe by /proc/self/fd: %s",
             strerror(code));
    return answer(peer, KEEP_REFUSED, code == EMFILE ? no_files : text);
}

/* Makes a process, of the group with this file, the one that has a free pool, and gives it the
 * pool. Otherwise answers why not, and the pool stays free. */
static bool take(struct keep_peer *peer, struct kept_pool *pool, const char *group, int pipe,
                 bool *taken)
{
    int pidfd = (int)syscall(SYS_pidfd_open, peer->process, 0);
    *taken = false;
    if (pidfd < 0)
        return answer(peer, KEEP_REFUSED,
                      errno == EMFILE ? no_files
                                      : "the owner cannot see when the process ends: it needs "
                                        "Linux 5.3, and to be in the "
                                        "same PID namespace or one around it");
    /* A process sends the same open file for all its pools, and a service manager keeps each open
     * file only once (sd_notify(3), FDSTORE=1). So each pool gets one of its own. */
    int held = file_reopen(pipe, O_RDONLY | O_NONBLOCK);
    if (held < 0) {
        int code = errno;
        close(pidfd);
        return refuse_pipe(peer, code);
    }
    leave(pool);
    keep_group_choose(pool, group);
    pool->ended = pidfd;
    pool->held = held;
    pool->process = peer->process;
    pool->peer = peer;
    peer->pool = pool;
    keep_record(pool);
    store_put(pool->slot, "process", pool->ended);
    store_put(pool->slot, "pipe", pool->held);
    *taken = true;
    return give(peer, pool, pool->file);
}

/* Requests ------------------------------------------------------------------------------------- */

static const char no_memory[] = "the owner has no memory for what a reader has";

/* A pool that arrives is only a part of one. If its process ends before it is whole, there is
 * none, as if the process had not come to tell the owner of it. */
static struct kept_pool *find_whole(const char *name)
{
    char text[KEEP_TEXT_BYTES];
    struct kept_pool *pool = find(name);
    if (!pool || !pool->arrives || !is_free(pool, text))
        return pool;
    drop(pool);
    return NULL;
}

/* A request about the segments of a pool that arrives was answered. */
static void arrive(struct kept_pool *pool)
{
    if (!pool->arrives || !pool->told || pool->lacks)
        return;
    pool->arrives = false;
    keep_record(pool);
}

static const char no_pipe[] = "the first file is not the end for reading of a pipe";

/* Whether a pool lies on the device of the request. If not, `text` says on which device it lies. */
static bool is_of_device(const struct kept_pool *pool, const struct keep_message *request,
                         char text[KEEP_TEXT_BYTES])
{
    if (strcmp(pool->driver, request->driver) == 0 && strcmp(pool->device, request->device) == 0)
        return true;
    snprintf(text, KEEP_TEXT_BYTES, "it is memory of %.11s %.51s, not of %.11s %.51s", pool->driver,
             pool->device, request->driver, request->device);
    return false;
}

static bool is_own(const struct keep_peer *peer, const struct kept_pool *pool)
{
    return pool->process == peer->process && !has_ended(pool->ended);
}

static bool adopt(struct keep_peer *peer, const struct keep_message *request, const int *files,
                  unsigned count)
{
    struct kept_pool *pool = find_whole(request->name);
    char text[KEEP_TEXT_BYTES];
    bool taken;
    if (!pool)
        return answer(peer, KEEP_UNKNOWN, NULL);
    if (peer->pool)
        return answer(peer, KEEP_REFUSED, "the connection has a pool already");
    if (count != 1 || !is_read_end(files[0]))
        return answer(peer, KEEP_REFUSED, no_pipe);
    if (!is_of_device(pool, request, text))
        return answer(peer, KEEP_REFUSED, text);
    if (is_own(peer, pool))
        return answer(peer, KEEP_YOURS, NULL);
    if (!is_free(pool, text))
        return answer(peer, KEEP_TAKEN, text);
    return take(peer, pool, request->text, files[0], &taken);
}

/* A reader gets an open file of the layout that it cannot write. A process does not begin to read
 * its own pool. If it read the pool before it took that over, it goes on. For a reader of a pool
 * that is over, another pool of that name is not that pool. */
static bool let_read(struct keep_peer *peer, const struct keep_message *request)
{
    struct kept_pool *pool = find_whole(request->name);
    char text[KEEP_TEXT_BYTES];
    if (!pool || pool->arrives || (peer->reads && peer->reads != pool))
        return answer(peer, KEEP_UNKNOWN, NULL);
    if (peer->pool)
        return answer(peer, KEEP_REFUSED, "the connection has a pool already");
    if (!is_of_device(pool, request, text))
        return answer(peer, KEEP_REFUSED, text);
    if (is_own(peer, pool) && !request->from)
        return answer(peer, KEEP_YOURS, NULL);
    int layout = file_reopen(pool->file, O_RDONLY);
    if (layout < 0)
        return answer(peer, KEEP_REFUSED,
                      errno == EMFILE ? no_files
                                      : "the owner cannot open the layout by /proc/self/fd");
    bool sent = keep_reader_begins(peer, pool) ? give(peer, pool, layout)
                                               : answer(peer, KEEP_REFUSED, no_memory);
    close(layout);
    return sent;
}

/* Makes a pool that nobody has; `file` is its layout. NULL with errno. */
static struct kept_pool *make(const struct keep_message *request, uint32_t slot, int file)
{
    struct layout *layout = file >= 0 ? layout_map(file, true) : NULL;
    struct kept_pool *pool = layout ? calloc(1, sizeof *pool) : NULL;
    if (!pool) {
        if (layout)
            layout_unmap(layout);
        return NULL;
    }
    memcpy(pool->name, request->name, sizeof pool->name);
    memcpy(pool->driver, request->driver, sizeof pool->driver);
    memcpy(pool->device, request->device, sizeof pool->device);
    pool->slot = slot;
    pool->record = -1;
    pool->file = file;
    pool->layout = layout;
    pool->ended = pool->held = -1;
    enter(pool);
    return pool;
}

/* Has the service manager hold a new pool. */
static void hand_over(struct kept_pool *pool)
{
    if (store_is_there())
        pool->record = memfd_create("tarn-keep-record", MFD_CLOEXEC);
    if (pool->record < 0)
        return;
    keep_record(pool);
    store_put(pool->slot, "record", pool->record);
    store_put(pool->slot, "layout", pool->file);
}

static bool create(struct keep_peer *peer, const struct keep_message *request, int *files,
                   unsigned files_count)
{
    unsigned count = 0;
    bool taken, again = files_count == 2;
    for (const struct kept_pool *pool = pools; pool; pool = pool->next)
        count += !pool->is_over;
    if (peer->pool || !request->name[0])
        return answer(peer, KEEP_REFUSED, "the connection has a pool already, or names none");
    if (find(request->name))
        return answer(peer, KEEP_TAKEN, "another process makes it");
    if (count >= POOLS_MOST)
        return answer(peer, KEEP_REFUSED, "the owner keeps 256 pools, its most");
    if (!files_count || files_count > 2 || !is_read_end(files[0]))
        return answer(peer, KEEP_REFUSED, no_pipe);
    int file = again ? files[1] : layout_create();
    struct kept_pool *pool = make(request, free_slot(0), file);
    if (!pool) {
        if (!again && file >= 0)
            close(file);
        return answer(peer, KEEP_REFUSED,
                      again ? "the second file is no layout"
                            : "the owner has no memory, or no file, for its layout");
    }
    if (again)
        files[1] = -1;
    pool->arrives = again;
    hand_over(pool);
    bool answered = take(peer, pool, request->text, files[0], &taken);
    if (!taken)
        drop(pool);
    return answered;
}

/* The connection of a process that has the pool ended, or this owner began after it. */
static bool join(struct keep_peer *peer, const struct keep_message *request)
{
    struct kept_pool *pool = find(request->name);
    if (!pool)
        return answer(peer, KEEP_UNKNOWN, NULL);
    if (peer->pool || !is_own(peer, pool))
        return answer(peer, KEEP_REFUSED, "it is not this process's");
    if (pool->peer)
        pool->peer->pool = NULL;
    pool->peer = peer;
    peer->pool = pool;
    pool->told = false; /* it says of all from the start */
    pool->lacks = 0;
    return answer(peer, KEEP_OK, NULL);
}

/* The process counts the pool's memory from now on. */
static bool counts(struct keep_peer *peer, const struct keep_message *request)
{
    struct kept_pool *pool = peer->pool;
    if (!pool || !keep_group_claim(pool, request->slot, 0))
        return answer(peer, KEEP_REFUSED, "that is no slot of a living process of its group");
    keep_record(pool);
    return answer(peer, KEEP_OK, NULL);
}

static bool has(const struct keep_segment *segments, unsigned count,
                const struct keep_segment *segment)
{
    for (unsigned i = 0; i < count; i++)
        if (memcmp(&segments[i], segment, sizeof *segment) == 0)
            return true;
    return false;
}

/* A reader says what it has mapped. */
static bool read_on(struct keep_peer *peer, const struct keep_message *request)
{
    struct kept_pool *pool = peer->reads;
    bool fits = keep_reader_has(peer, request);
    bury(pool);
    return fits ? answer(peer, KEEP_OK, NULL) : answer(peer, KEEP_REFUSED, no_memory);
}

/* Gives up the segments of a part of the pool that its process does not have, and says which of its
 * segments are not here. What a reader has changes nothing of the pool. */
static bool compare(struct keep_peer *peer, const struct keep_message *request)
{
    struct kept_pool *pool = peer->pool;
    struct keep_message result = keep_message(KEEP_OK);
    if (!pool && peer->reads && request->count <= KEEP_BATCH)
        return read_on(peer, request);
    if (!pool || request->count > KEEP_BATCH)
        return answer(peer, KEEP_REFUSED, "these are no segments of a pool of this connection");
    for (unsigned i = pool->count; i-- > 0;)
        if (pool->segments[i].offset >= request->from && pool->segments[i].offset < request->to &&
            !has(request->segments, request->count, &pool->segments[i]))
            forget(pool, i);
    for (uint32_t i = 0; i < request->count; i++)
        if (!has(pool->segments, pool->count, &request->segments[i]))
            result.segments[result.count++] = request->segments[i];
    pool->lacks += result.count;
    pool->told = request->to == UINT64_MAX;
    arrive(pool);
    return reply(peer, &result, NULL, 0);
}

static bool meet(const struct keep_segment *known, const struct keep_segment *segment)
{
    return known->offset < segment->offset + segment->size &&
           segment->offset < known->offset + known->size;
}

static bool add(struct keep_peer *peer, const struct keep_message *request, int *files,
                unsigned count)
{
    struct kept_pool *pool = peer->pool;
    const struct keep_segment *segment = &request->segments[0];
    if (!pool || request->count != 1 || count != 1 || !segment->size ||
        segment->size > UINT64_MAX - segment->offset)
        return answer(peer, KEEP_REFUSED, "that is no segment of a pool of this connection");
    for (unsigned i = pool->count;
         i-- > 0;) /* of these the process has let go: a REMOVE was lost */
        if (meet(&pool->segments[i], segment))
            forget(pool, i);
    if (pool->count == KEEP_SEGMENTS_MOST)
        return answer(peer, KEEP_REFUSED, "the pool has 1024 segments, the most that are kept");
    pool->segments[pool->count] = *segment;
    pool->files[pool->count++] = files[0];
    store_put_segment(pool->slot, segment, files[0]);
    keep_record(pool);
    files[0] = -1;
    pool->lacks -= pool->lacks > 0;
    arrive(pool);
    return answer(peer, KEEP_OK, NULL);
}

static bool take_back(struct keep_peer *peer, const struct keep_message *request)
{
    struct kept_pool *pool = peer->pool;
    if (!pool)
        return answer(peer, KEEP_REFUSED, "the connection has no pool");
    for (unsigned i = pool->count; i-- > 0;)
        if (pool->segments[i].offset == request->segments[0].offset)
            forget(pool, i);
    return answer(peer, KEEP_OK, NULL);
}

/* Whether no process ever used the pool: one that was used may have readers. */
static bool is_unused(const struct kept_pool *pool)
{
    return pool->count == 0 && !atomic_load(&pool->layout->base);
}

/* The process has nothing of the pool mapped, and others may have it. */
static bool return_pool(struct keep_peer *peer)
{
    struct kept_pool *pool = peer->pool;
    if (pool && is_unused(pool))
        drop(pool);
    else if (pool)
        leave(pool);
    return answer(peer, KEEP_OK, NULL);
}

/* The next pool of a list. The list is not sent as a whole: it may have more than a connection
 * takes without a wait. */
static bool list(const struct keep_peer *peer, const struct keep_message *last)
{
    const struct kept_pool *pool = pools;
    while (pool && !is_behind(pool, last->name, last->slot))
        pool = pool->next;
    if (!pool)
        return answer(peer, KEEP_OK, NULL);
    struct keep_message message = description(pool);
    message.blocks = pool->is_over ? 0 : layout_count(pool->layout);
    message.readers = keep_readers(pool);
    message.from = keep_lingering(pool);
    message.to = pool->is_over;
    snprintf(message.text, sizeof message.text, "%s", keep_group_name(pool));
    message.process = has_ended(pool->ended) && is_let_go(pool->held) ? 0 : pool->process;
    return reply(peer, &message, NULL, 0);
}

/* A pool that arrives ends for this owner alone: its process goes on, with what is sealed. */
static bool end_of(struct keep_peer *peer)
{
    struct kept_pool *pool = peer->pool;
    if (pool && pool->arrives)
        drop(pool);
    else if (pool)
        end(pool);
    return answer(peer, KEEP_OK, NULL);
}

static bool drop_by_name(const struct keep_peer *peer, const char *name)
{
    struct kept_pool *pool = find(name);
    char text[KEEP_TEXT_BYTES];
    if (!pool)
        return answer(peer, KEEP_REFUSED, "there is no pool of that name");
    if (!is_free(pool, text))
        return answer(peer, KEEP_REFUSED, text);
    end(pool);
    return answer(peer, KEEP_OK, NULL);
}

bool keep_refuse_files(const struct keep_peer *peer)
{
    return answer(peer, KEEP_REFUSED, no_files);
}

bool keep_serve(struct keep_peer *peer, const struct keep_message *request, int *files,
                unsigned count)
{
    switch (request->verb) {
    case KEEP_ADOPT:
        return adopt(peer, request, files, count);
    case KEEP_CREATE:
        return create(peer, request, files, count);
    case KEEP_READ:
        return let_read(peer, request);
    case KEEP_JOIN:
        return join(peer, request);
    case KEEP_COUNTS:
        return counts(peer, request);
    case KEEP_HAS:
        return compare(peer, request);
    case KEEP_ADD:
        return add(peer, request, files, count);
    case KEEP_REMOVE:
        return take_back(peer, request);
    case KEEP_END:
        return end_of(peer);
    case KEEP_RETURN:
        return return_pool(peer);
    case KEEP_LIST:
        return list(peer, request);
    case KEEP_DROP:
        return drop_by_name(peer, request->name);
    default:
        return answer(peer, KEEP_REFUSED, "the owner does not know this request");
    }
}

void keep_part(struct keep_peer *peer)
{
    struct kept_pool *read = peer->reads;
    if (peer->pool)
        peer->pool->peer = NULL;
    peer->pool = NULL;
    keep_reader_ends(peer);
    if (read)
        bury(read);
    keep_groups_count();
    keep_groups_look_often();
}

/* The owner's process before this one ---------------------------------------------------------- */

static bool read_record(int file, struct keep_message *message)
{
    return file >= 0 && pread(file, message, sizeof *message, 0) == (ssize_t)sizeof *message &&
           wire_is_message(message) && message->name[0] && !find(message->name);
}

/* Who has the pool. If one of both files is missing, the process had no answer yet. */
static void restore_process(struct kept_pool *pool)
{
    pool->ended = store_claim(pool->slot, "process");
    pool->held = store_claim(pool->slot, "pipe");
    if (pool->ended < 0 || pool->held < 0)
        leave(pool);
}

static void restore_segments(struct kept_pool *pool, uint32_t recorded)
{
    int file;
    while (pool->count < KEEP_SEGMENTS_MOST &&
           (file = store_claim_segment(pool->slot, &pool->segments[pool->count])) >= 0)
        pool->files[pool->count++] = file;
    if (pool->count < recorded)
        fprintf(stderr,
                "tarn keep: pool %s: the service manager had %u of %u segments; "
                "FileDescriptorStoreMax may be too small\n",
                pool->name, pool->count, (unsigned)recorded);
}

static void restore(uint32_t slot)
{
    struct keep_message message;
    int written = store_claim(slot, "record"), file = store_claim(slot, "layout");
    struct kept_pool *pool = read_record(written, &message) ? make(&message, slot, file) : NULL;
    if (!pool) {
        struct kept_pool none = {.slot = slot};
        give_up(&none, "record", written);
        give_up(&none, "layout", file);
        return;
    }
    pool->record = written;
    pool->process = (pid_t)message.process;
    pool->arrives = message.blocks;
    restore_process(pool);
    restore_segments(pool, message.count);
    keep_group_choose(pool, message.text);
    pool->claim = (unsigned)message.from;
    pool->claimed = message.to;
}

/* The groups have what the owner's process before wrote there until all pools are here. */
void keep_restore(void)
{
    keep_groups_restore();
    for (uint32_t slot = 0; slot < POOLS_MOST; slot++)
        restore(slot);
    keep_groups_claim_again();
    for (struct kept_pool *pool = pools, *next; pool; pool = next) {
        next = pool->next;
        if (pool->ended < 0 && (pool->arrives || is_unused(pool)))
            drop(pool);
    }
    keep_groups_count();
    store_drop_unclaimed();
}
