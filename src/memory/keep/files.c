/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* The files of segments that a process has taken over, for another owner: the driver does not
 * export again what was imported (cuMemExportToShareableHandle() gives CUDA_ERROR_INVALID_VALUE).
 * They are on their way from one socket of the process to another, a batch in each message. There
 * they need no descriptors: the table of the process does not grow, which takes time (wire.h), and
 * its limit is not reached. A file is looked for by sending each message again. An owner gets all
 * of a pool or nothing, so if one file cannot be kept, none is.
 *
 * A user without CAP_SYS_RESOURCE may have as many files on their way, from all processes, as the
 * one that sends may have open: beyond that no file can be sent to anybody (unix(7),
 * ETOOMANYREFS). Owns both sockets, under a lock of its own. */
#include "base/file.h"
#include "memory/keep/keep.h"

#include <sys/socket.h>
#include <unistd.h>

void files_begin(struct keep_files *files)
{
    mutex_init(&files->lock, LOCK_LEAF);
    files->in = files->out = -1;
    files->messages = 0;
    files->lost = false;
}

static void drop_all_locked(struct keep_files *files)
{
    if (files->in >= 0) {
        file_close(files->in);
        file_close(files->out);
    }
    files->in = files->out = -1;
    files->messages = 0;
    files->lost = true;
}

void files_drop_all(struct keep_files *files)
{
    mutex_lock(&files->lock);
    drop_all_locked(files);
    mutex_unlock(&files->lock);
}

static bool open_locked(struct keep_files *files)
{
    int both[2];
    if (files->in >= 0)
        return true;
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, both) != 0)
        return false;
    int in = file_renumber(both[0]), out = file_renumber(both[1]);
    if (in < 0 || out < 0) {
        close(in);
        close(out);
        return false;
    }
    file_keep_from_children(in);
    file_keep_from_children(out);
    files->in = in;
    files->out = out;
    return true;
}

static void send_locked(struct keep_files *files, const struct keep_message *batch, const int *list)
{
    if (!batch->count)
        return;
    if (wire_send(files->in, batch, list, batch->count))
        files->messages++;
    else
        drop_all_locked(files);
}

void files_put(struct keep_files *files, const struct keep_message *batch, const int *list)
{
    mutex_lock(&files->lock);
    if (!files->lost && open_locked(files))
        send_locked(files, batch, list);
    else
        files->lost = true;
    mutex_unlock(&files->lock);
}

/* Returns the file of a segment in a batch, or -1. Unless it `stays`, takes it out. */
static int find(struct keep_message *batch, int *list, uint64_t offset, bool stays)
{
    for (uint32_t i = 0; i < batch->count; i++) {
        int file = list[i];
        if (batch->segments[i].offset != offset)
            continue;
        if (!stays) {
            batch->count--;
            batch->segments[i] = batch->segments[batch->count];
            list[i] = list[batch->count];
        }
        return file;
    }
    return -1;
}

/* Looks for the file in the oldest message, and sends the message again. */
static int look_locked(struct keep_files *files, uint64_t offset, bool stays)
{
    struct keep_message batch;
    int list[KEEP_BATCH];
    unsigned count;
    files->messages--;
    if (wire_receive(files->out, &batch, list, &count) != 1)
        return -1;
    for (unsigned i = 0; i < count; i++)
        file_keep_from_children(list[i]);
    int found = find(&batch, list, offset, stays);
    send_locked(files, &batch, list);
    for (unsigned i = 0; i < batch.count; i++)
        if (list[i] != found)
            file_close(list[i]);
    return found;
}

static int get(struct keep_files *files, uint64_t offset, bool stays)
{
    int found = -1;
    mutex_lock(&files->lock);
    for (unsigned left = files->messages; left && files->messages && found < 0; left--)
        found = look_locked(files, offset, stays);
    mutex_unlock(&files->lock);
    return found;
}

int files_get(struct keep_files *files, uint64_t offset)
{
    return get(files, offset, true);
}

void files_drop(struct keep_files *files, uint64_t offset)
{
    int file = get(files, offset, false);
    if (file >= 0)
        file_close(file);
}
