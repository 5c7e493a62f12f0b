/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* What a process says to the owner of its kept pools, in calls that cannot be cancelled. Owns the
 * connection of each pool. No answer of an owner is trusted: one that does not fit the request ends
 * the connection, and its files are closed. An owner that does not answer in time counts as gone,
 * since a late answer would be taken for that of another request. */
#include "base/file.h"
#include "base/status.h"
#include "base/variable.h"
#include "memory/keep/keep.h"
#include "record/ticks.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define RETURN_MS 2000 /* a service manager starts an owner again within that time */

static void close_all(const int *files, unsigned *count)
{
    while (*count > 0)
        file_close(files[--*count]);
}

static void pause_ms(unsigned ms)
{
    struct timespec time = {ms / 1000, (long)(ms % 1000) * 1000000};
    while (nanosleep(&time, &time) && errno == EINTR)
        ;
}

/* Until when a request is repeated after the owner's end. */
static uint64_t patience_from_now(void)
{
    return ticks_of_system() + RETURN_MS * UINT64_C(1000000);
}

/* One request ---------------------------------------------------------------------------------- */

static bool is_silence(int code)
{
    return code == EAGAIN || code == EINPROGRESS;
}

static const char *reason(int code)
{
    if (is_silence(code))
        return "it does not answer";
    if (code == EPROTO)
        return "what it answered makes no sense";
    if (code == EMFILE)
        return "this process has no file descriptors left for what it gave: ulimit -n";
    if (code == ETOOMANYREFS)
        return "too many descriptors of this user are on their way between processes: ulimit -n";
    return code ? strerror(code) : "it closed the connection";
}

static tarn_status owner_is_gone(struct keep *keep, int code)
{
    if (keep->socket >= 0)
        close(keep->socket);
    keep->socket = -1;
    keep->silent = is_silence(code);
    keep->closed = code == 0 || code == ECONNRESET || code == EPIPE;
    return failed(TARN_ERROR_SYSTEM, "the owner at %s, which keeps pool %s, is gone (%s): %s",
                  keep->path, keep->name, reason(code),
                  keep->reads ? "only what this process has of the pool can be read"
                              : "the pool's memory ends with this process, and no segment can be "
                                "added");
}

static bool is_refusal(const struct keep_message *answer)
{
    return answer->verb == KEEP_TAKEN || answer->verb == KEEP_REFUSED ||
           answer->verb == KEEP_UNKNOWN || answer->verb == KEEP_YOURS;
}

/* Receives an answer with `wanted` files, or a refusal without files. */
static tarn_status receive(struct keep *keep, struct keep_message *answer, int *files,
                           unsigned wanted)
{
    unsigned count = 0;
    errno = 0;
    if (wire_receive(keep->socket, answer, files, &count) <= 0)
        return owner_is_gone(keep, errno);
    if (count == (is_refusal(answer) ? 0 : wanted))
        return TARN_OK;
    close_all(files, &count);
    return owner_is_gone(keep, EPROTO);
}

/* What an answer means to whoever wanted one of a kind. */
static tarn_status verdict(struct keep *keep, const struct keep_message *answer,
                           enum keep_verb wanted)
{
    if (answer->verb == wanted)
        return TARN_OK;
    if (answer->verb == KEEP_YOURS)
        return failed(TARN_ERROR_BUSY,
                      "this process has pool %s of the owner at %s already: use that tarn_pool",
                      keep->name, keep->path);
    if (answer->verb != KEEP_TAKEN && answer->verb != KEEP_REFUSED)
        return owner_is_gone(keep, EPROTO);
    return failed(answer->verb == KEEP_TAKEN ? TARN_ERROR_BUSY : TARN_ERROR_SYSTEM,
                  "the owner at %s refuses pool %s: %s", keep->path, keep->name, answer->text);
}

/* If the user has too many files on their way (files.c), the pool's go, which are only for another
 * owner; and what others have soon arrives. */
static bool send_locked(struct keep *keep, const struct keep_message *request, const int *files,
                        unsigned count)
{
    for (uint64_t deadline = patience_from_now();; pause_ms(1)) {
        errno = EPIPE;
        if (keep->socket >= 0 && wire_send(keep->socket, request, files, count))
            return true;
        if (errno != ETOOMANYREFS || ticks_of_system() >= deadline)
            return false;
        files_drop_all(&keep->files);
    }
}

/* Sends a request that is answered by an OK. */
static tarn_status exchange_locked(struct keep *keep, const struct keep_message *request, int file,
                                   struct keep_message *answer)
{
    int files[KEEP_BATCH];
    if (!send_locked(keep, request, &file, file >= 0))
        return owner_is_gone(keep, errno);
    tarn_status status = receive(keep, answer, files, 0);
    return status ? status : verdict(keep, answer, KEEP_OK);
}

tarn_status owner_connect(struct keep *keep)
{
    keep->socket = wire_connect(keep->path);
    if (keep->socket >= 0)
        return TARN_OK;
    return failed(TARN_ERROR_SYSTEM,
                  "no owner answers at %s (%s): start one by tarn keep --socket %s", keep->path,
                  reason(errno), keep->path);
}

/* Getting a pool ------------------------------------------------------------------------------- */

static struct keep_message request_of(const struct keep *keep, enum keep_verb verb)
{
    struct keep_message request = keep_message(verb);
    memcpy(request.name, keep->name, sizeof request.name);
    strncpy(request.driver, driver->name, sizeof request.driver - 1);
    strncpy(request.device, keep->uuid, sizeof request.device - 1);
    const char *group = variable_get("TARN_RUN_GROUP");
    if (group && strlen(group) < sizeof request.text)
        memcpy(request.text, group, strlen(group));
    return request;
}

/* Asks for the pool, with its layout if this process has it. `file` becomes its layout. To ADOPT
 * and READ, KEEP_UNKNOWN is an answer too, without a file. */
static tarn_status ask_for_locked(struct keep *keep, enum keep_verb verb, int layout,
                                  struct keep_message *answer, int *file)
{
    struct keep_message request = request_of(keep, verb);
    int files[KEEP_BATCH], sent[2] = {-1, layout};
    tarn_status status = verb == KEEP_READ ? TARN_OK : keep_pipe(&sent[0]);
    if (status)
        return status;
    request.from = verb == KEEP_READ && keep->begun;
    if (!send_locked(keep, &request, sent, verb == KEEP_READ ? 0 : layout >= 0 ? 2 : 1))
        return owner_is_gone(keep, errno);
    status = receive(keep, answer, files, 1);
    if (status || (verb != KEEP_CREATE && answer->verb == KEEP_UNKNOWN))
        return status;
    *file = files[0];
    status = verdict(keep, answer, KEEP_GIVES);
    if (!status && strcmp(answer->name, keep->name) == 0)
        return TARN_OK;
    if (!is_refusal(answer))
        close(*file);
    return status ? status : owner_is_gone(keep, EPROTO);
}

/* Adopts the pool, or creates it. */
static tarn_status adopt_or_create(struct keep *keep, struct keep_message *answer, int *file)
{
    mutex_lock(&keep->talking);
    tarn_status status = ask_for_locked(keep, KEEP_ADOPT, -1, answer, file);
    if (!status && answer->verb == KEEP_UNKNOWN)
        status = ask_for_locked(keep, KEEP_CREATE, -1, answer, file);
    mutex_unlock(&keep->talking);
    return status;
}

/* Asks the owner for a pool to read, beside the process that has the pool or had it last. */
static tarn_status read_beside(struct keep *keep, struct keep_message *answer, int *file)
{
    mutex_lock(&keep->talking);
    tarn_status status = ask_for_locked(keep, KEEP_READ, -1, answer, file);
    mutex_unlock(&keep->talking);
    if (!status && answer->verb == KEEP_UNKNOWN)
        return failed(TARN_ERROR_BUSY,
                      "the owner at %s has no pool %s to be read: a process makes it by "
                      "tarn_pool_keep() without `read`",
                      keep->path, keep->name);
    return status;
}

tarn_status owner_get(struct keep *keep, unsigned wait_ms, struct keep_message *found)
{
    int file = -1;
    uint64_t deadline = ticks_of_system() + (uint64_t)wait_ms * 1000000u;
    tarn_status status;
    keep->asked = !keep->reads;
    for (unsigned pause = 1;; pause = pause < 20 ? pause * 2 : pause) {
        struct error_before before;
        error_attempt_begin(&before);
        status =
            keep->reads ? read_beside(keep, found, &file) : adopt_or_create(keep, found, &file);
        error_attempt_end(&before, status);
        if (status != TARN_ERROR_BUSY || found->verb == KEEP_YOURS || ticks_of_system() >= deadline)
            break;
        pause_ms(pause);
    }
    if (status)
        return status;
    keep->layout = layout_map(file, !keep->reads);
    int code = errno;
    keep->file = file;
    return keep->layout
               ? TARN_OK
               : failed(TARN_ERROR_SYSTEM, "what the owner at %s gave has no layout of a pool: %s",
                        keep->path, strerror(code));
}

/* Receives some of the segments, and maps them, unless one before failed. */
static tarn_status adopt_batch(struct keep *keep, size_t *left, tarn_status before)
{
    struct keep_message batch;
    int files[KEEP_BATCH];
    unsigned wanted = *left < KEEP_BATCH ? (unsigned)*left : KEEP_BATCH, count = wanted;
    tarn_status status = receive(keep, &batch, files, wanted);
    if (status)
        return status;
    for (unsigned i = 0; batch.verb == KEEP_SEGMENTS && i < wanted; i++)
        file_keep_from_children(files[i]);
    if (batch.verb != KEEP_SEGMENTS || batch.count != wanted)
        status = owner_is_gone(keep, EPROTO);
    for (unsigned i = 0; !before && !status && i < wanted; i++)
        status = window_adopt(keep, &batch.segments[i], files[i]);
    if (!before && !status && !keep->reads)
        files_put(&keep->files, &batch, files);
    if (batch.verb == KEEP_SEGMENTS)
        close_all(files, &count);
    *left -= wanted;
    return before ? before : status;
}

/* After a failure the rest is received too, so that the next answer is that of the next request. */
tarn_status owner_segments(struct keep *keep, size_t count, tarn_status status)
{
    while (keep->socket >= 0 && count > 0)
        status = adopt_batch(keep, &count, status);
    return status;
}

/* Reading beside ------------------------------------------------------------------------------- */

static bool is_same_file(int a, int b)
{
    struct stat x, y;
    return fstat(a, &x) == 0 && fstat(b, &y) == 0 && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

/* Asks the owner on the pool's connection, which is made if there is none, and maps what is new. An
 * owner that began anew may not know the pool, which goes on then: its layout tells. `other`: the
 * owner has another pool of that name. */
static tarn_status look_once_locked(struct keep *keep, bool *other)
{
    struct keep_message answer;
    int file = -1;
    uint64_t segments = atomic_load_explicit(&keep->layout->segments, memory_order_acquire);
    if (keep->socket < 0)
        keep->socket = wire_connect(keep->path);
    tarn_status status = keep->socket < 0 ? owner_is_gone(keep, errno)
                                          : ask_for_locked(keep, KEEP_READ, -1, &answer, &file);
    if (status)
        return status;
    bool given = answer.verb == KEEP_GIVES, same = given && is_same_file(file, keep->file);
    if (given)
        close(file);
    *other = given && !same;
    if (*other) { /* the owner takes this process for a reader of that */
        close(keep->socket);
        keep->socket = -1;
    }
    if (!same)
        status = failed(TARN_ERROR_SYSTEM,
                        "the owner at %s no longer has the pool %s that is read here: release it, "
                        "and ask for it again",
                        keep->path, keep->name);
    keep->looks++;
    status = owner_segments(keep, given ? answer.count : 0, status);
    if (!same && layout_used(keep->layout) == 0) /* it is over, or nothing was ever found */
        window_settle(keep);
    if (!status) {
        window_settle(keep);
        keep->looked_at = segments;
        if (window_has_old(keep))
            owner_tell_locked(keep);
    }
    return status;
}

/* A connection that has ended is made again. An owner may be killed while it is asked, so a new one
 * that it closes is made once more, after a pause. An owner that is silent is not asked again by
 * this call. */
tarn_status owner_look_locked(struct keep *keep)
{
    struct error_before before;
    uint64_t deadline = patience_from_now();
    tarn_status status;
    bool again, other = false;
    error_attempt_begin(&before);
    keep->silent = keep->closed = false;
    do {
        bool fresh = keep->socket < 0;
        status = look_once_locked(keep, &other);
        again = status && !other && keep->socket < 0 &&
                (fresh ? keep->closed && ticks_of_system() < deadline : !keep->silent);
        if (again && fresh)
            pause_ms(10);
    } while (again);
    error_attempt_end(&before, status);
    return status;
}

/* Counting ------------------------------------------------------------------------------------- */

/* Tells the owner that this process's group counts the pool from now on. If the owner refuses, both
 * groups count the pool. */
static tarn_status count_locked(struct keep *keep)
{
    struct keep_message request = keep_message(KEEP_COUNTS), answer;
    int slot = driver_counting.slot ? driver_counting.slot() : -1;
    int files[KEEP_BATCH];
    if (slot < 0)
        return TARN_OK;
    request.slot = (uint32_t)slot;
    if (!send_locked(keep, &request, NULL, 0))
        return owner_is_gone(keep, errno);
    tarn_status status = receive(keep, &answer, files, 0);
    return status || answer.verb == KEEP_REFUSED ? status : verdict(keep, &answer, KEEP_OK);
}

tarn_status owner_count(struct keep *keep)
{
    uint64_t taken = window_take_over(keep);
    mutex_lock(&keep->talking);
    tarn_status status = count_locked(keep);
    mutex_unlock(&keep->talking);
    if (taken)
        driver_counting.has_taken_over(keep->device->number, taken);
    return status;
}

/* An owner that came back ---------------------------------------------------------------------- */

/* Hands a segment over again. */
static tarn_status give_again_locked(struct keep *keep, const struct keep_segment *segment)
{
    struct keep_message request = keep_message(KEEP_ADD), answer;
    int file = -1;
    tarn_status status = window_export(keep, segment->offset, &file);
    if (status)
        return status;
    file_keep_from_children(file);
    request.count = 1;
    request.segments[0] = *segment;
    status = exchange_locked(keep, &request, file, &answer);
    file_close(file);
    return status;
}

/* Compares the pool's segments from `*from` on, at most a batch, with those of the owner. The owner
 * receives the segments that it lacks, and drops those that the pool no longer has. Of a reader it
 * wants none. Sets `*from` to where the comparison ended. */
static tarn_status compare_locked(struct keep *keep, uint64_t *from)
{
    struct keep_message request = keep_message(KEEP_HAS), answer;
    request.from = *from;
    request.count = window_kept(keep, *from, request.segments);
    const struct keep_segment *last = &request.segments[KEEP_BATCH - 1];
    request.to = request.count == KEEP_BATCH ? last->offset + last->size : UINT64_MAX;
    *from = request.to;
    tarn_status status = exchange_locked(keep, &request, -1, &answer);
    if (!status && answer.count > (keep->reads ? 0 : request.count))
        status = owner_is_gone(keep, EPROTO);
    for (uint32_t i = 0; !status && i < answer.count; i++)
        status = give_again_locked(keep, &answer.segments[i]);
    return status;
}

/* An owner that does not hear of it counts what it gave, until the connection ends. */
void owner_tell_locked(struct keep *keep)
{
    uint64_t from = 0;
    tarn_status status = TARN_OK;
    struct error_before before;
    error_attempt_begin(&before);
    while (!status && keep->socket >= 0 && from != UINT64_MAX)
        status = compare_locked(keep, &from);
    error_attempt_end(&before, TARN_OK);
}

/* Makes the pool known to an owner that does not know it. */
static tarn_status create_again_locked(struct keep *keep)
{
    struct keep_message answer;
    int file = -1;
    tarn_status status = ask_for_locked(keep, KEEP_CREATE, keep->file, &answer, &file);
    if (!status)
        close(file);
    return status;
}

/* `made`: the owner did not know the pool. */
static tarn_status join_locked(struct keep *keep, bool *made)
{
    struct keep_message request = request_of(keep, KEEP_JOIN), answer;
    int files[KEEP_BATCH];
    if (!send_locked(keep, &request, NULL, 0))
        return owner_is_gone(keep, errno);
    tarn_status status = receive(keep, &answer, files, 0);
    if (status)
        return status;
    if (answer.verb != KEEP_UNKNOWN)
        return verdict(keep, &answer, KEEP_OK);
    *made = !keep->returns;
    return *made ? create_again_locked(keep) : owner_is_gone(keep, ENOENT);
}

/* Ends a registration that failed. An owner that has made the pool for it gives it up: without the
 * segments nobody could take it over. */
static void leave_again_locked(struct keep *keep, bool made)
{
    struct keep_message request = keep_message(KEEP_END), answer;
    struct error_before before;
    error_attempt_begin(&before);
    if (made && keep->socket >= 0)
        (void)exchange_locked(keep, &request, -1, &answer);
    error_attempt_end(&before, TARN_OK);
    if (keep->socket >= 0)
        close(keep->socket);
    keep->socket = -1;
}

/* Connects to the owner again. Waits until `deadline` for an owner that was killed: its socket is
 * still there. An owner that ended has removed its socket. */
static tarn_status connect_again_locked(struct keep *keep, uint64_t deadline)
{
    keep->socket = wire_connect(keep->path);
    while (keep->socket < 0 && errno == ECONNREFUSED && ticks_of_system() < deadline) {
        pause_ms(10);
        keep->socket = wire_connect(keep->path);
    }
    keep->missed = keep->socket < 0;
    return keep->missed ? owner_is_gone(keep, errno) : TARN_OK;
}

/* Tells the owner that listens now of the pool; `made` as join_locked(). A pool that is not to be
 * has no segments here, and the owner keeps what it has. */
static tarn_status register_locked(struct keep *keep, bool *made)
{
    uint64_t from = 0;
    tarn_status status = join_locked(keep, made);
    if (!status && !keep->returns)
        status = count_locked(keep);
    while (!status && !keep->returns && from != UINT64_MAX)
        status = compare_locked(keep, &from);
    return status;
}

/* Registers the pool with the owner that listens now, and makes a request. Repeats both if that
 * owner ends too. A process that is killed closes its connections before the socket at which it
 * listens: then the new connection is closed as well. */
static tarn_status register_and_ask_locked(struct keep *keep, const struct keep_message *request,
                                           int file, struct keep_message *answer)
{
    uint64_t deadline = keep->missed ? 0 : patience_from_now();
    bool registered, made;
    tarn_status status;
    for (;; pause_ms(10)) {
        made = false;
        status = connect_again_locked(keep, deadline);
        if (!status)
            status = register_locked(keep, &made);
        registered = status == TARN_OK;
        if (registered)
            status = exchange_locked(keep, request, file, answer);
        if (!status || keep->socket >= 0 || !keep->closed || ticks_of_system() >= deadline)
            break;
    }
    if (!registered)
        leave_again_locked(keep, made);
    return status;
}

/* Makes a request; if the connection has ended, of the owner that listens now. An owner that is
 * silent is not asked again. */
static tarn_status ask_locked(struct keep *keep, const struct keep_message *request, int file)
{
    struct keep_message answer;
    struct error_before before;
    error_attempt_begin(&before);
    tarn_status status = exchange_locked(keep, request, file, &answer);
    if (status && keep->socket < 0 && !keep->silent)
        status = register_and_ask_locked(keep, request, file, &answer);
    error_attempt_end(&before, status);
    return status;
}

tarn_status owner_ask(struct keep *keep, enum keep_verb verb, const struct keep_segment *segment,
                      int file)
{
    struct keep_message request = keep_message(verb);
    request.count = 1;
    request.segments[0] = *segment;
    mutex_lock(&keep->talking);
    if (verb == KEEP_REMOVE)
        window_keep(keep, segment->offset, false);
    tarn_status status = ask_locked(keep, &request, file);
    if (verb == KEEP_ADD && !status) {
        window_keep(keep, segment->offset, true);
        layout_numbers(keep->layout, segment->number);
    }
    mutex_unlock(&keep->talking);
    return status;
}

void owner_leave(struct keep *keep, enum keep_verb verb)
{
    struct keep_message request = keep_message(verb);
    mutex_lock(&keep->talking);
    if (keep->asked)
        (void)ask_locked(keep, &request, -1);
    mutex_unlock(&keep->talking);
    int files[] = {keep->socket, keep->file};
    for (int i = 0; i < 2; i++)
        if (files[i] >= 0)
            close(files[i]);
    keep->socket = keep->file = -1;
}
