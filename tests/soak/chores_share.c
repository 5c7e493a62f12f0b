/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Chores with memory that others use: exported, sent over a socket, imported again by this same
 * process, and pinned. What is written through the one address is read through the other. */
#include "chores.h"

#include <sys/socket.h>
#include <unistd.h>

/* Sends a share over a socket, as to another process, and gives the one that arrives; or the one
 * that was there. */
static tarn_share *pass(tarn_share *share)
{
    int ends[2];
    tarn_share *received = NULL;
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) {
        wrong("no pair of sockets can be made");
        return share;
    }
    if (OK(tarn_share_send(ends[0], share)) && OK(tarn_share_receive(ends[1], &received))) {
        OK(tarn_share_close(share));
        share = received;
    }
    close(ends[0]);
    close(ends[1]);
    return share;
}

/* Closes an import, which stays where the driver refuses. */
static void import_close(void *pointer)
{
    for (int tries = 0; !OK(tarn_import_close(pointer)); tries++) {
        calm();
        if (tries > 1000) {
            wrong("an import cannot be closed: %s", tarn_last_error());
            return;
        }
    }
}

/* The block under a second address. */
static void compare(struct worker *worker, unsigned char *block, unsigned char *seen, size_t size)
{
    tarn_block_info info = {.size = sizeof info};
    block[0] = (unsigned char)below(worker, 256);
    seen[size - 1] = (unsigned char)below(worker, 256);
    mix_run(&tarn, worker, 16);
    if (seen == block || seen[0] != block[0] || seen[size - 1] != block[size - 1])
        wrong("an import of %zu bytes is other memory than the block that was exported", size);
    if (tarn_free(seen) != TARN_ERROR_INVALID_POINTER)
        wrong("an import was freed");
    if (OK(tarn_pointer_info_get(seen, &info)) && (!info.imported || info.base != seen))
        wrong("an import is said to be something else");
}

static void use_share(struct worker *worker, tarn_share *share, int device, unsigned char *block,
                      size_t size)
{
    void *seen = NULL, *again = NULL;
    if (!OK(tarn_import(share, device, &seen)))
        return;
    compare(worker, block, seen, size);
    if (below(worker, 2) && OK(tarn_import(share, device, &again))) {
        if (again != seen)
            wrong("a second import of the same share has another address");
        import_close(again);
        compare(worker, block, seen, size);
    }
    import_close(seen); /* once more would close whoever's import is there by now */
}

void do_share(struct worker *worker)
{
    int device = (int)below(worker, DEVICES);
    struct place place = some_place(worker, device);
    tarn_pool_options options = {.size = sizeof options, .device = device, .exportable = true};
    tarn_pool *pool = NULL;
    tarn_share *share = NULL;
    void *block = NULL;
    size_t size = some_bytes(worker);
    if (!OK(tarn_pool_create(&options, &pool)))
        return;
    if (OK(tarn_pool_alloc(pool, place.stream, size, &block)) && OK(tarn_export(block, &share))) {
        if (below(worker, 2))
            share = pass(share);
        use_share(worker, share, device, block, size);
        if (below(worker, 2)) { /* the block goes first, and another may have its memory */
            OK(tarn_free(block));
            block = NULL;
            mix_run(&tarn, worker, 16);
        }
        OK(tarn_share_close(share));
    }
    OK(tarn_pool_release(pool));
    OK(tarn_free(block));
}

/* Memory that stays where it is, whatever is trimmed, for as long as its pin lasts: longer than its
 * block. */
void do_pin(struct worker *worker)
{
    struct place place = some_place(worker, (int)below(worker, DEVICES));
    unsigned char *block = NULL;
    size_t size = some_bytes(worker);
    if (!OK(tarn_alloc_on(place.stream, size, (void **)&block)))
        return;
    bool is_pinned = OK(tarn_anchor(block, size));
    OK(tarn_free(block));
    mix_run(&tarn, worker, 32);
    if (is_pinned)
        OK(tarn_unanchor(block, size));
}
